import { LabIcon } from '@jupyterlab/ui-components';

/** Two ranks, each with a bucket that is full and one that waits. */
const svgstr = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" width="24">
  <rect class="ddpviz-mark-full" x="3" y="4" width="11" height="6" rx="1"/>
  <rect class="ddpviz-mark-waiting" x="15" y="4" width="6" height="6" rx="1"/>
  <rect class="ddpviz-mark-full" x="3" y="14" width="7" height="6" rx="1"/>
  <rect class="ddpviz-mark-waiting" x="11" y="14" width="10" height="6" rx="1"/>
</svg>`;

export const ddpvizIcon = new LabIcon({ name: 'ddpviz:mark', svgstr });
