/** Which keys a deck takes, and which it leaves to the widget that has the focus. */

import { afterEach, expect, test } from 'vitest';
import { giveFocusBack, isForDeck } from '../src/deck/keys';

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

test('what a pointer used gives the focus back, what Tab reached keeps it', () => {
  giveFocusBack(document);
  const button = shadowed('<button>Play</button>');
  const root = button.getRootNode() as ShadowRoot;
  button.focus();
  button.dispatchEvent(
    new KeyboardEvent('keydown', { key: ' ', bubbles: true, composed: true })
  );
  button.click();
  expect(root.activeElement).toBe(button);
  button.dispatchEvent(
    new MouseEvent('pointerdown', { bubbles: true, composed: true })
  );
  button.click();
  expect(root.activeElement).toBe(null);
});
