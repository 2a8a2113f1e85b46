/** What is needed of a canvas to measure texts on it. */
export type Measuring = Pick<
  CanvasRenderingContext2D,
  'font' | 'measureText' | 'clearRect'
>;

type TextWidth = (text: string, font: string) => number;

/** Texts between two paints: few enough to forget, and painting costs more than measuring. */
const PAINT_EVERY = 100;

/**
 * Have BokehJS measure texts on a canvas that is painted now and then.
 *
 * Its own is never painted, and Chromium (156) forgets what it has shaped for a canvas only as that
 * is painted: each different text cost 2.5 kB for as long as the page lives, and a live figure has
 * ten new ones a second. BokehJS looks its function up in the module at each call (3.9).
 */
export function measureOnPaintedCanvas(graphics: unknown): void {
  if (!hasTextWidth(graphics)) {
    return; // A version that measures elsewhere, or forbids to change it.
  }
  const context = document.createElement('canvas').getContext('2d');
  if (context !== null) {
    graphics.text_width = textWidth(context);
  }
}

export function textWidth(context: Measuring): TextWidth {
  let measured = 0;
  return (text, font) => {
    context.font = font;
    const { width } = context.measureText(text);
    measured += 1;
    if (measured % PAINT_EVERY === 0) {
      context.clearRect(0, 0, 1, 1);
    }
    return width;
  };
}

function hasTextWidth(module: unknown): module is { text_width: TextWidth } {
  return (
    typeof module === 'object' &&
    module !== null &&
    Object.getOwnPropertyDescriptor(module, 'text_width')?.writable === true
  );
}
