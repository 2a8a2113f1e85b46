/** What a slide plays, and the focus in it, end when it is left. */

import type { Deck } from './reveal';
import type { View } from './bokeh';

export function stopWhenLeft(deck: Deck, blur: () => void): void {
  deck.on('slidechanged', event => {
    const { previousSlide } = event as Event & { previousSlide?: Element };
    blur();
    for (const root of window.Bokeh?.index.roots ?? []) {
      if (previousSlide?.contains(root.el) === true) {
        stop(root);
      }
    }
  });
}

/** A button that plays keeps the timer that it plays by. */
function stop(view: View): void {
  if (typeof view.model.replay === 'number') {
    view.shadow_el?.querySelector('button')?.click();
  }
  view.child_views?.forEach(stop);
}
