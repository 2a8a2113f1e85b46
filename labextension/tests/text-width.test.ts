import { describe, expect, it } from 'vitest';

import type { Measuring } from '../src/explorer/text-width';
import { measureOnPaintedCanvas, textWidth } from '../src/explorer/text-width';

describe('measuring texts', () => {
  it('paints the canvas now and then, so that its texts are forgotten', () => {
    const said: string[] = [];
    const context: Measuring = {
      font: '',
      measureText(text: string) {
        said.push(`${this.font}: ${text}`);
        return { width: text.length } as TextMetrics;
      },
      clearRect: () => said.push('painted')
    };
    const width = textWidth(context);
    const widths = Array.from({ length: 250 }, (_, n) =>
      width(`step ${String(n)}`, '11px Arial')
    );
    expect(widths.slice(8, 12)).toEqual([6, 6, 7, 7]);
    expect(said[0]).toBe('11px Arial: step 0');
    expect(said.flatMap((one, n) => (one === 'painted' ? [n] : []))).toEqual([
      100, 201
    ]);
  });

  it('leaves a BokehJS alone that measures elsewhere', () => {
    const frozen = Object.freeze({ text_width: () => 1 });
    for (const module of [undefined, null, {}, frozen]) {
      expect(() => {
        measureOnPaintedCanvas(module);
      }).not.toThrow();
    }
    expect(frozen.text_width()).toBe(1);
  });
});
