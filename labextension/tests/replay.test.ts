// @vitest-environment jsdom
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import type { BokehModel } from '../src/explorer/bokeh';
import { Replay } from '../src/explorer/replay';

function cursor(end: number): BokehModel {
  const model = {
    id: 'p1',
    document: null,
    data: { x: [end], begin: [0], right: [end] } as Record<string, unknown>,
    setv(values: Readonly<Record<string, unknown>>) {
      Object.assign(model, values);
    }
  };
  return model;
}

function at(model: BokehModel): number | undefined {
  return (model.data?.['x'] as ArrayLike<number> | undefined)?.[0];
}

describe('a replay', () => {
  let stays = 0;
  let replay: Replay;
  const part = <K extends 'button' | 'input' | 'span'>(
    name: K
  ): HTMLElementTagNameMap[K] => {
    const found = replay.node.querySelector(name);
    if (found === null) {
      throw new Error(`no ${name}`);
    }
    return found;
  };
  const slide = (value: number) => {
    const slider = part('input');
    slider.value = String(value);
    slider.dispatchEvent(new Event('input'));
  };

  beforeEach(() => {
    vi.useFakeTimers();
    stays = 0;
    replay = new Replay(() => {
      stays += 1;
    });
  });
  afterEach(() => {
    replay.dispose();
    vi.useRealTimers();
  });

  it('is there only where the figure has a cursor with a place', () => {
    expect(replay.node.hidden).toBe(true);
    replay.attach({ ...cursor(8), data: { x: [], begin: [], right: [] } });
    expect(replay.node.hidden).toBe(true);
    replay.attach(cursor(8));
    expect(replay.node.hidden).toBe(false);
  });

  it('moves the cursor and stays at the step', () => {
    const model = cursor(8);
    replay.attach(model);
    slide(250);
    expect(at(model)).toBe(2);
    expect(stays).toBe(1);
    expect(part('span').textContent).toBe('2.0 of 8.0 ms');
    expect(part('input').getAttribute('aria-valuetext')).toBe('2.0 of 8.0 ms');
  });

  it('plays from the begin to the end, and pauses', () => {
    const model = cursor(8);
    replay.attach(model);
    const button = part('button');
    button.click();
    expect(at(model)).toBe(0);
    vi.advanceTimersByTime(4000);
    expect(at(model)).toBeCloseTo(4);
    button.click();
    vi.advanceTimersByTime(4000);
    expect(at(model)).toBeCloseTo(4);
    button.click();
    vi.advanceTimersByTime(9000);
    expect(at(model)).toBe(8);
    expect(button.textContent).toBe('▶ Play');
    expect(vi.getTimerCount()).toBe(0);
  });

  it('keeps its place where the figure gets new data, and follows at the end', () => {
    const model = cursor(8);
    replay.attach(model);
    slide(500);
    model.setv({ data: { x: [10], begin: [0], right: [10] } });
    replay.drawn();
    expect(at(model)).toBe(5);
    slide(1000);
    model.setv({ data: { x: [20], begin: [0], right: [20] } });
    replay.drawn();
    expect(at(model)).toBe(20);
  });
});
