/** The slides that nbconvert makes of a notebook: they scroll where they have more than fits. */

import { deckOf, sayReady, started, whenLoaded } from './reveal';
import { isPrinting } from './paper';

whenLoaded(() => {
  const deck = deckOf({
    navigationMode: 'linear',
    pdfMaxPagesPerSlide: 3
  });
  void started(deck, isPrinting()).then(sayReady);
});
