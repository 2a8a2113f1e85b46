/** The timeline's title stands above it as text, which wraps, whatever step is chosen. */

import { drawn, plots, textOf } from './bokeh';

export function findings(): void {
  const element = document.getElementById('finding-timeline');
  const holder = document.querySelector('#timeline .figure');
  if (element === null || holder === null) {
    return;
  }
  void drawn().then(bokeh => {
    for (const { el, model } of bokeh.index.roots) {
      const title = plots(model)[0]?.title;
      if (holder.contains(el) && typeof title === 'object' && title !== null) {
        title.properties['text']?.change.connect(() => {
          element.textContent = textOf(title);
        });
      }
    }
  });
}
