/** Which keys are the deck's, and which belong to the widget that has the focus. */

const PRESSING = new Set([' ', 'Enter']);

/** Whether a key goes through slides: typed into a field, a list or a slider it does not. */
export function isForDeck(event: KeyboardEvent): boolean {
  // Bokeh's widgets are in shadow trees: the event's own target is only their host.
  const target = event.composedPath()[0];
  if (!(target instanceof Element)) {
    return true;
  }
  if (takesKeys(target)) {
    return false;
  }
  return !(isPressed(target) && PRESSING.has(event.key));
}

/**
 * What was used by a pointer gives the focus back, so that arrows go through slides again. What was
 * reached by Tab keeps it.
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
      if (focused instanceof HTMLElement && focused !== document.body) {
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

function takesKeys(target: Element): boolean {
  return (
    target instanceof HTMLInputElement ||
    target instanceof HTMLSelectElement ||
    target instanceof HTMLTextAreaElement ||
    target.classList.contains('noUi-handle') ||
    (target instanceof HTMLElement && target.isContentEditable)
  );
}

function isPressed(target: Element): boolean {
  return (
    target instanceof HTMLButtonElement ||
    target instanceof HTMLAnchorElement ||
    target.tagName === 'SUMMARY'
  );
}
