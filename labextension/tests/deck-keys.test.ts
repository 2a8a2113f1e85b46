/** Which keys a deck takes, and which it leaves to the widget that has the focus. */

import { afterEach, expect, test } from 'vitest';
import { giveFocusBack, keepFocus } from '../src/deck/focus';
import { isForDeck, leaveWidgets } from '../src/deck/keys';

afterEach(() => {
  document.body.replaceChildren();
});

/** An element in a shadow tree, as Bokeh's widgets are. */
function shadowed(html: string): HTMLElement {
  const host = document.createElement('div');
  document.body.append(host);
  const root = host.attachShadow({ mode: 'open' });
  root.innerHTML = html;
  return root.firstElementChild as HTMLElement;
}

function isTaken(element: HTMLElement, key: string): boolean {
  const taken: boolean[] = [];
  const listen = (event: KeyboardEvent): void => {
    taken.push(isForDeck(event));
  };
  document.addEventListener('keydown', listen);
  element.dispatchEvent(
    new KeyboardEvent('keydown', { key, bubbles: true, composed: true })
  );
  document.removeEventListener('keydown', listen);
  expect(taken).toHaveLength(1);
  return taken[0] === true;
}

test.each([
  '<select><option>1</option></select>',
  '<input>',
  '<textarea></textarea>',
  '<div class="noUi-handle" tabindex="0"></div>'
])('keys in %s are its own', html => {
  const widget = shadowed(html);
  for (const key of ['ArrowRight', ' ', 'n', 's']) {
    expect(isTaken(widget, key)).toBe(false);
  }
});

test('a button is pressed by its keys, and arrows go through slides', () => {
  const button = shadowed('<button>Play</button>');
  expect(isTaken(button, ' ')).toBe(false);
  expect(isTaken(button, 'Enter')).toBe(false);
  expect(isTaken(button, 'ArrowRight')).toBe(true);
});

test('elsewhere all keys are the deck’s', () => {
  expect(isTaken(document.body, ' ')).toBe(true);
  expect(isTaken(shadowed('<div></div>'), 'ArrowLeft')).toBe(true);
});

test('a key that the speaker’s window passes on is the deck’s', () => {
  expect(isForDeck({ keyCode: 39 })).toBe(true);
});

/** Elements of a slide, in a shadow tree. */
function onSlide(html: string): HTMLElement {
  const element = shadowed(html);
  const { host } = element.getRootNode() as ShadowRoot;
  const slides = document.createElement('div');
  slides.className = 'slides';
  document.body.append(slides);
  slides.append(host);
  return element;
}

function press(element: HTMLElement, key: string): void {
  element.dispatchEvent(
    new KeyboardEvent('keydown', {
      key,
      bubbles: true,
      cancelable: true,
      composed: true
    })
  );
}

test('a clicker and Escape leave a widget, arrows stay in it', () => {
  const pressed: number[] = [];
  leaveWidgets(document, keyCode => pressed.push(keyCode));
  const select = onSlide('<select><option>1</option></select>');
  const root = select.getRootNode() as ShadowRoot;
  for (const [key, passed] of [
    ['PageDown', [34]],
    ['PageUp', [33]],
    ['Escape', []]
  ] as const) {
    select.focus();
    press(select, 'ArrowRight');
    expect(root.activeElement).toBe(select);
    press(select, key);
    expect(root.activeElement).toBe(null);
    expect(pressed.splice(0)).toEqual(passed);
  }
});

test('what a pointer used gives the focus back, what Tab reached keeps it', () => {
  giveFocusBack(document);
  const handle = onSlide('<div class="noUi-handle" tabindex="0"></div>');
  const root = handle.getRootNode() as ShadowRoot;
  handle.focus();
  press(handle, 'Home');
  handle.click();
  expect(root.activeElement).toBe(handle);
  handle.dispatchEvent(
    new MouseEvent('pointerdown', { bubbles: true, composed: true })
  );
  handle.click();
  expect(root.activeElement).toBe(null);
});

test('a button of a slide keeps the focus when it is clicked, also drawn anew', async () => {
  giveFocusBack(document);
  const blur = keepFocus(document);
  const button = onSlide('<button>Play</button>');
  const root = button.getRootNode() as ShadowRoot;
  button.dispatchEvent(
    new MouseEvent('pointerdown', { bubbles: true, composed: true })
  );
  button.focus();
  button.click();
  button.dispatchEvent(
    new MouseEvent('pointerdown', { bubbles: true, composed: true })
  );
  button.click();
  expect(root.activeElement).toBe(button);
  root.innerHTML = '<button>Pause</button>';
  await Promise.resolve();
  expect(root.activeElement).toBe(root.querySelector('button'));
  blur();
  root.innerHTML = '<button>Play</button>';
  await Promise.resolve();
  expect(root.activeElement).toBe(null);
});
