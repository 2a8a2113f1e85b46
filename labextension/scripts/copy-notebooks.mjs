// The notebooks have one source, notebooks/; the extension carries copies of them, so that its
// command works where there is no checkout.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';

const folder = new URL('../../notebooks/', import.meta.url);
const found = {};
for (const name of readdirSync(folder).sort()) {
  if (name.endsWith('.ipynb')) {
    found[name] = JSON.parse(readFileSync(new URL(name, folder), 'utf-8'));
  }
}
writeFileSync(
  new URL('../src/notebooks.json', import.meta.url),
  JSON.stringify(found)
);
