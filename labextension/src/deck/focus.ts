/** Where the focus goes: a deck's keys go through slides unless something needs them. */

import { isOnSlide } from './keys';

/**
 * What was used by a pointer gives the focus back, so that arrows go through slides again. What was
 * reached by Tab keeps it, and so does a button of a slide, which leaves arrows to the deck anyway.
 */
export function giveFocusBack(document: Document): void {
  let pointed = false;
  const leave = (event: Event): void => {
    const target = event.composedPath()[0];
    const kept = target instanceof HTMLSelectElement && event.type !== 'change';
    if (pointed && target instanceof HTMLElement && !kept) {
      const active = target.getRootNode();
      const focused =
        active instanceof ShadowRoot || active instanceof Document
          ? active.activeElement
          : null;
      const isButton = focused instanceof HTMLButtonElement && isOnSlide(event);
      if (
        focused instanceof HTMLElement &&
        focused !== document.body &&
        !isButton
      ) {
        focused.blur();
      }
    }
  };
  document.addEventListener(
    'pointerdown',
    () => {
      pointed = true;
    },
    true
  );
  document.addEventListener(
    'keydown',
    () => {
      pointed = false;
    },
    true
  );
  // A change does not leave a shadow tree by itself: it is listened to where it happens.
  document.addEventListener(
    'focusin',
    event => {
      event.composedPath()[0]?.addEventListener('change', leave, {
        once: true
      });
    },
    true
  );
  document.addEventListener('click', leave, true);
  document.addEventListener('pointerup', leave, true);
}

/**
 * Bokeh draws a button anew for another label: the new one takes the focus over. Returns what takes
 * the focus away from wherever it is.
 */
export function keepFocus(document: Document): () => void {
  let held: { button: HTMLButtonElement; root: ShadowRoot } | null = null;
  const observer = new MutationObserver(() => {
    if (held !== null && !held.button.isConnected) {
      held.root.querySelector('button')?.focus();
    }
  });
  const forget = (): void => {
    held = null;
    observer.disconnect();
  };
  document.addEventListener(
    'pointerdown',
    event => {
      // What has the focus already is not told of it again.
      if (held !== null && !event.composedPath().includes(held.button)) {
        forget();
      }
    },
    true
  );
  document.addEventListener(
    'focusin',
    event => {
      forget();
      const button = event.composedPath()[0];
      if (button instanceof HTMLButtonElement) {
        const root = button.getRootNode();
        if (root instanceof ShadowRoot) {
          held = { button, root };
          observer.observe(root, { childList: true, subtree: true });
        }
      }
    },
    true
  );
  return () => {
    forget();
    let focused = document.activeElement;
    while (focused?.shadowRoot?.activeElement) {
      focused = focused.shadowRoot.activeElement;
    }
    if (focused instanceof HTMLElement && focused !== document.body) {
      focused.blur();
    }
  };
}
