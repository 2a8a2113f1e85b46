// The explorer as one ES module for anywidget, with its style inside and nothing from outside.
import { build } from 'esbuild';
import { fileURLToPath } from 'node:url';

const here = path => fileURLToPath(new URL(path, import.meta.url));

await build({
  entryPoints: [here('../src/explorer/anywidget.ts')],
  outfile: here('../../ddpviz/explorer/static/explorer.js'),
  bundle: true,
  format: 'esm',
  target: 'es2022',
  minify: true,
  legalComments: 'none',
  loader: { '.css': 'text' },
  logLevel: 'warning'
});
