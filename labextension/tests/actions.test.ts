import { describe, expect, it } from 'vitest';

import { joinReasons, whyNot } from '../src/explorer/actions';
import { age, number, share } from '../src/explorer/format';
import { meaning, rowsOf } from '../src/explorer/selection';
import { state } from './support';

describe('an action', () => {
  it('says why it is off', () => {
    const training = state({ status: 'training' });
    expect(whyNot('start', training, true, null)).toBe('it trains already');
    expect(whyNot('stop', training, true, null)).toBeNull();
    expect(whyNot('stop', state(), true, null)).toBe('nothing is training');
    expect(whyNot('start', state({ workload: '' }), true, null)).toContain(
      'session.load'
    );
    expect(whyNot('start', state({ status: 'failed' }), true, null)).toContain(
      'restart first'
    );
    expect(whyNot('start', state(), false, null)).toContain('not answer');
  });

  it('kills only through the server', () => {
    const kill = () => Promise.resolve('');
    expect(whyNot('kill', state(), true, null)).toContain('server part');
    expect(
      whyNot('kill', state(), false, { unavailable: null, kill })
    ).toBeNull();
  });

  it('shares its reason with the others', () => {
    expect(joinReasons(['start: it is closed', 'stop: it is closed'])).toBe(
      'Start and Stop are off: it is closed.'
    );
  });
});

describe('numbers', () => {
  it('have the digits they deserve', () => {
    expect(number(199.4)).toBe('199');
    expect(number(12.345)).toBe('12.3');
    expect(number(0.684)).toBe('0.68');
    expect(share(0.004)).toBe('< 1 %');
    expect(share(0.263)).toBe('26 %');
    expect(age(12)).toBe('12 s');
    expect(age(7200)).toBe('2 h');
  });
});

describe('linked selection', () => {
  it('is told by what a row stands for', () => {
    const data = { bucket: new Float64Array([-1, 2]), rank: [0, 1] };
    expect(meaning(data, 1)).toEqual({ bucket: 2, rank: 1 });
    // A compute lane is no bucket.
    expect(meaning(data, 0)).toEqual({ rank: 0 });
    expect(meaning({ x: [1] }, 0)).toBeNull();
  });

  it('finds the rows of a bucket, on its rank where the view has ranks', () => {
    const spans = { bucket: [0, 1, 0, 1], rank: [0, 0, 1, 1] };
    expect(rowsOf(spans, { bucket: 1 })).toEqual([1, 3]);
    expect(rowsOf(spans, { bucket: 1, rank: 1 })).toEqual([3]);
    expect(rowsOf({ bucket: [0, 1] }, { bucket: 1, rank: 1 })).toEqual([1]);
    expect(rowsOf({ x: [0] }, { bucket: 1 })).toBeNull();
  });
});
