// The tour has one source, notebooks/tour.ipynb; the extension carries a copy of it, so that the
// command works where there is no checkout.
import { copyFileSync } from 'node:fs';

copyFileSync(
  new URL('../../notebooks/tour.ipynb', import.meta.url),
  new URL('../src/tour.json', import.meta.url)
);
