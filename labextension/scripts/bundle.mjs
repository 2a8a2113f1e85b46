// What runs outside of JupyterLab, each as one file that needs nothing from outside: the explorer as
// an ES module for anywidget, with its style inside; script and style of a deck of slides, and of
// the slides that nbconvert makes of a notebook.
import { build } from 'esbuild';
import { readFileSync } from 'node:fs';
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

// A deck carries reveal.js, whose licence wants to be with every copy.
const licence = readFileSync(
  here('../node_modules/reveal.js/LICENSE'),
  'utf-8'
);
const banner = `/*! With reveal.js:\n${licence.trim()}\n*/`;

for (const [name, folder] of [
  ['deck', '../../ddpviz/export/static'],
  ['notebook', '../../ddpviz/export/templates/ddpviz-slides/static']
]) {
  await build({
    entryPoints: [here(`../src/deck/${name}.ts`), here(`../style/${name}.css`)],
    outdir: here(folder),
    entryNames: '[name]',
    bundle: true,
    format: 'iife',
    target: 'es2022',
    minify: true,
    legalComments: 'none',
    banner: { js: banner, css: banner },
    logLevel: 'warning'
  });
}
