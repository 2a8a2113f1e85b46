/** Which keys are the deck's, and which belong to the widget that has the focus. */

const PRESSING = new Set([' ', 'Enter']);
/** What clickers send, wherever the focus is. */
const CLICKED: Readonly<Record<string, number>> = { PageUp: 33, PageDown: 34 };

/**
 * Whether a key goes through slides: typed into a field, a list or a slider it does not. What the
 * speaker's window passes on is no event, and does.
 */
export function isForDeck(event: object): boolean {
  if (!(event instanceof KeyboardEvent)) {
    return true;
  }
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
 * Escape leaves the widget of a slide that takes keys, and so does a clicker, whose key is passed to
 * the deck.
 */
export function leaveWidgets(
  document: Document,
  press: (keyCode: number) => void
): void {
  document.addEventListener(
    'keydown',
    event => {
      const target = event.composedPath()[0];
      const clicked = CLICKED[event.key];
      const isLeaving =
        (clicked !== undefined || event.key === 'Escape') &&
        !(event.altKey || event.ctrlKey || event.metaKey || event.shiftKey);
      if (
        isLeaving &&
        target instanceof HTMLElement &&
        takesKeys(target) &&
        isOnSlide(event)
      ) {
        event.preventDefault();
        event.stopImmediatePropagation();
        target.blur();
        if (clicked !== undefined) {
          press(clicked);
        }
      }
    },
    true
  );
}

/** Whether an event is of something in a slide. */
export function isOnSlide(event: Event): boolean {
  return event
    .composedPath()
    .some(node => node instanceof Element && node.matches('.slides'));
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
