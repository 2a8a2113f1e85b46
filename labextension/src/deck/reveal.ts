/** What all decks have in common of reveal.js. */

import type { RevealConfig } from 'reveal.js';
import Notes from 'reveal.js/plugin/notes';
import { giveFocusBack, keepFocus } from './focus';
import { isForDeck, leaveWidgets } from './keys';
import { isPrinting, printAtOnce, printable } from './paper';
import Reveal from 'reveal.js';
import { listKeys } from './help';
import { stopWhenLeft } from './playing';

/** The key T. */
const NOTES_KEY = 84;

export type Deck = InstanceType<typeof Reveal>;

/** A deck whose slides are as large as the window, and are never scaled. */
export function deckOf(more: Partial<RevealConfig> = {}): Deck {
  const deck = new Reveal({
    // Bokeh finds what the pointer is on only where nothing is scaled by a transform.
    disableLayout: true,
    center: false,
    controlsTutorial: false,
    hash: true,
    history: false,
    keyboardCondition: isForDeck,
    margin: 0,
    overview: false,
    pdfMaxPagesPerSlide: 1,
    pdfSeparateFragments: false,
    plugins: [Notes],
    scrollActivationWidth: 0,
    slideNumber: 'c/t',
    transition: 'none',
    ...more
  });
  let below = false;
  deck.addKeyBinding(
    {
      keyCode: NOTES_KEY,
      key: 'T',
      description: 'Speaker notes below the slide'
    },
    () => {
      below = !below;
      deck.configure({ showNotes: below });
    }
  );
  if (!isPrinting()) {
    giveFocusBack(document);
    leaveWidgets(document, keyCode => {
      deck.triggerKey(keyCode);
    });
    stopWhenLeft(deck, keepFocus(document));
    printable();
    const element = document.querySelector<HTMLElement>('.reveal');
    if (element !== null) {
      listKeys(element);
    }
  }
  return deck;
}

/** Until the deck is laid out, on the screen or for paper. */
export async function started(deck: Deck, printing: boolean): Promise<void> {
  const laid = new Promise<void>(resolve => {
    deck.on(printing ? 'pdf-ready' : 'ready', () => {
      resolve();
    });
  });
  await Promise.all([deck.initialize(), laid]);
}

/** Tell whoever drives the browser that nothing moves any more. */
export function sayReady(): void {
  document.documentElement.dataset['deck'] = 'ready';
  printAtOnce();
}

/** Run as soon as the page is there. */
export function whenLoaded(start: () => void): void {
  if (document.readyState === 'loading') {
    document.addEventListener('DOMContentLoaded', start);
  } else {
    start();
  }
}
