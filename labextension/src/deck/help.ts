/** The list of keys that `?` opens: reveal.js's own names some that a deck has not. */

const KEYS: readonly (readonly [string, string])[] = [
  ['→, PAGE DOWN, SPACE, N', 'Next slide'],
  ['←, PAGE UP, P', 'Previous slide'],
  ['HOME, END', 'First slide, last slide'],
  ['G', 'Go to a slide by its number'],
  ['F', 'Full screen'],
  ['B', 'Black screen, and back'],
  ['S', 'Speaker’s view, in a window of its own'],
  ['T', 'Speaker notes below the slide'],
  ['CTRL P, ⌘ P', 'Print, every slide a page'],
  ['ESC', 'Leave a list or a slider; close this']
];

/** Ours in place of reveal.js's, whenever its list is opened. */
export function listKeys(deck: HTMLElement): void {
  new MutationObserver(() => {
    const table = deck.querySelector('.r-overlay-help table');
    if (table !== null && table !== ours) {
      ours = listed();
      table.replaceWith(ours);
    }
  }).observe(deck, { childList: true });
}

let ours: HTMLTableElement | null = null;

function listed(): HTMLTableElement {
  const table = document.createElement('table');
  for (const texts of KEYS) {
    const row = table.insertRow();
    for (const text of texts) {
      row.insertCell().textContent = text;
    }
  }
  return table;
}
