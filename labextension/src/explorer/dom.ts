/** Elements are made here, from text and never from HTML: names come from the user's model. */

type Child = Node | string | null;

interface Options {
  class?: string;
  title?: string;
  attributes?: Readonly<Record<string, string>>;
  on?: Readonly<Record<string, (event: Event) => void>>;
}

export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  options: Options = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  if (options.class !== undefined) {
    made.className = options.class;
  }
  if (options.title !== undefined) {
    made.title = options.title;
  }
  for (const [name, value] of Object.entries(options.attributes ?? {})) {
    made.setAttribute(name, value);
  }
  for (const [name, callback] of Object.entries(options.on ?? {})) {
    made.addEventListener(name, callback);
  }
  made.append(...children.filter(child => child !== null));
  return made;
}

/** Set the text where it differs: a live region speaks again at each change. */
export function setText(node: Node, text: string): void {
  if (node.textContent !== text) {
    node.textContent = text;
  }
}

export function show(node: HTMLElement, shown: boolean): void {
  node.hidden = !shown;
}

let made = 0;

/** An id for aria-describedby and the like. */
export function newId(name: string): string {
  made += 1;
  return `ddpviz-${name}-${String(made)}`;
}

/**
 * Disable a button and say why, or enable it.
 *
 * Not by the `disabled` attribute: such a button takes no focus, so that a keyboard's or a screen
 * reader's user would never hear the reason.
 */
export function setReason(button: HTMLButtonElement, why: string | null): void {
  if (why === null) {
    button.removeAttribute('aria-disabled');
    button.title = button.dataset['title'] ?? '';
  } else {
    button.setAttribute('aria-disabled', 'true');
    button.title = why;
  }
}

/** Two clicks within this time are one, as those of a double click. */
const DOUBLE_CLICK_MS = 500;

/** For buttons that do something once: the second click of a double click does nothing. */
export function once(press: () => void): () => void {
  let last = -Infinity;
  return () => {
    const now = performance.now();
    if (now - last >= DOUBLE_CLICK_MS) {
      last = now;
      press();
    }
  };
}

export function isDisabled(button: HTMLButtonElement): boolean {
  return button.getAttribute('aria-disabled') === 'true';
}

/**
 * Keys in this field are the field's: JupyterLab would take arrows for its own, and Enter for the
 * cell's, before the field sees them. Enter takes the value.
 */
export function keepKeys<Field extends HTMLInputElement | HTMLSelectElement>(
  field: Field
): Field {
  field.setAttribute('data-lm-suppress-shortcuts', 'true');
  let taken = field.value;
  field.addEventListener('focus', () => {
    taken = field.value;
  });
  field.addEventListener('change', () => {
    taken = field.value;
  });
  field.addEventListener('keydown', event => {
    const { key } = event as KeyboardEvent;
    if (key !== 'Escape' && key !== 'Tab') {
      event.stopPropagation();
    }
    if (key === 'Enter' && field.value !== taken) {
      event.preventDefault();
      field.dispatchEvent(new Event('change', { bubbles: true }));
    }
  });
  return field;
}
