import { describe, expect, it } from 'vitest';

import { unpack } from '../src/explorer/frame';
import type { PackedView } from '../src/explorer/protocol';

function view(sources: NonNullable<PackedView['sources']>): PackedView {
  return { structure: 1, step: 3, title: 'found', sources };
}

function bytesOf(values: number[], lead = 0): DataView {
  const buffer = new ArrayBuffer(lead + 8 * values.length);
  const data = new DataView(buffer);
  values.forEach((value, place) => {
    data.setFloat64(lead + 8 * place, value, true);
  });
  return data;
}

describe('a frame', () => {
  it('gives columns of numbers from its one buffer', () => {
    const update = unpack(
      view({ spans: { left: [0, 2], right: [16, 2] } }),
      bytesOf([1.5, 2, 3, 4.25])
    );
    expect([...(update.sources['spans']?.['left'] ?? [])]).toEqual([1.5, 2]);
    expect([...(update.sources['spans']?.['right'] ?? [])]).toEqual([3, 4.25]);
  });

  it('may have its buffer anywhere inside a message, also unaligned', () => {
    const whole = bytesOf([7, 8], 3);
    const inside = new DataView(whole.buffer, 3, 16);
    const update = unpack(view({ spans: { x: [8, 1] } }), inside);
    expect([...(update.sources['spans']?.['x'] ?? [])]).toEqual([8]);
  });

  it('copies what it keeps, so that a column does not keep the message', () => {
    const data = bytesOf([1, 2, 3]);
    const update = unpack(view({ spans: { x: [0, 1] } }), data);
    const column = update.sources['spans']?.['x'] as Float64Array;
    expect(column.buffer.byteLength).toBe(8);
  });

  it('takes text as it is, also two of them', () => {
    const update = unpack(
      view({ labels: { text: ['rank 0', 'rank 1'] } }),
      bytesOf([])
    );
    expect(update.sources['labels']?.['text']).toEqual(['rank 0', 'rank 1']);
  });

  it('keeps NaN, which is nowhere in JSON', () => {
    const update = unpack(view({ spans: { x: [0, 1] } }), bytesOf([NaN]));
    expect((update.sources['spans']?.['x'] as Float64Array)[0]).toBeNaN();
  });

  it('is refused where a column lies outside of its buffer', () => {
    expect(() =>
      unpack(view({ spans: { left: [8, 2] } }), bytesOf([1, 2]))
    ).toThrow('spans.left at byte 8 with 2 numbers');
  });
});
