/** Printing: another view of the same file has a page for every slide. */

const VIEW = '?print-pdf';
/** That view prints itself once it is laid out. */
const AT_ONCE = `${VIEW}&dialog`;

export function isPrinting(): boolean {
  return /print-pdf|view=print/i.test(location.search);
}

/** Ctrl+P opens that view, and the browser's menu prints one page that tells of it. */
export function printable(): void {
  document.addEventListener('keydown', event => {
    const isAsked =
      (event.ctrlKey || event.metaKey) &&
      !(event.altKey || event.shiftKey) &&
      event.key.toLowerCase() === 'p';
    // Where no window may be opened, the browser prints what it has.
    if (isAsked && window.open(address(AT_ONCE)) !== null) {
      event.preventDefault();
    }
  });
  const told = document.createElement('div');
  told.className = 'on-paper';
  for (const [name, text] of [
    ['h2', 'Slides print from another view'],
    [
      'p',
      'Close this, and press Ctrl+P (⌘P on a Mac) on the slides: that view opens, with a page for every slide, and prints.'
    ],
    ['p', 'Or open this file with ?print-pdf at the end of its address:'],
    ['pre', address(VIEW)]
  ] as const) {
    told.appendChild(document.createElement(name)).textContent = text;
  }
  document.body.append(told);
}

/**
 * BokehJS keeps an invisible element where each renderer is, also beyond its frame. A browser that
 * prints makes the page as wide as these, and all that is on it smaller than it was fitted for.
 */
export function keptOnThePage(root: Document | ShadowRoot = document): void {
  for (const one of root.querySelectorAll<HTMLElement>('*')) {
    if (one.classList.contains('bk-GlyphRenderer')) {
      one.style.display = 'none';
    }
    if (one.shadowRoot !== null) {
      keptOnThePage(one.shadowRoot);
    }
  }
}

/** The browser's dialog, where the view was opened for it. */
export function printAtOnce(): void {
  if (location.search === AT_ONCE) {
    print();
  }
}

function address(search: string): string {
  const url = new URL(location.href);
  url.hash = '';
  url.search = search;
  return url.href;
}
