/** A deck of slides: reveal.js moves through them, Bokeh's figures fill the room they have. */

import { findings } from './findings';
import { figuresDrawn, fitted } from './fit';
import { deckOf, sayReady, started, whenLoaded } from './reveal';
import { fitWords } from './words';
import { isPrinting, keptOnThePage } from './paper';

whenLoaded(() => {
  const printing = isPrinting();
  const deck = deckOf({ viewDistance: 1 });
  findings();
  fitWords();
  void Promise.all([started(deck, printing), figuresDrawn()])
    .then(() => fitted(printing))
    .then(() => {
      if (printing) {
        keptOnThePage();
      }
      sayReady();
    });
});
