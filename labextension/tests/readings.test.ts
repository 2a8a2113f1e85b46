// @vitest-environment jsdom
import { describe, expect, it } from 'vitest';

import { Readings } from '../src/explorer/readings';
import { settled } from './support';

const EVIL = '<img src=x onerror="window.hit = 1">';

function part<K extends 'select' | 'pre'>(
  readings: Readings,
  name: K
): HTMLElementTagNameMap[K] {
  const found = readings.node.querySelector(name);
  if (found === null) {
    throw new Error(`no ${name}`);
  }
  return found;
}

function choose(readings: Readings, key: string): void {
  const select = part(readings, 'select');
  select.value = key;
  select.dispatchEvent(new Event('change'));
}

describe('what can be read in full', () => {
  it('is asked for when it is chosen, and is text', async () => {
    const asked: string[] = [];
    const readings = new Readings(key => {
      asked.push(key);
      return Promise.resolve(`code of ${key} ${EVIL}`);
    });
    expect(readings.node.hidden).toBe(true);
    readings.offer([
      ['0/1', EVIL],
      ['0/2', 'graph 2']
    ]);
    await settled();
    expect(readings.node.hidden).toBe(false);
    expect(asked).toEqual([]);
    choose(readings, '0/2');
    await settled();
    expect(part(readings, 'pre').textContent).toBe(`code of 0/2 ${EVIL}`);
    expect(readings.node.querySelector('img')).toBeNull();
  });

  it('is opened by its key, and nothing that is not offered', async () => {
    const readings = new Readings(key => Promise.resolve(key));
    readings.offer([['0/1', 'graph 1']]);
    readings.open('0/9');
    await settled();
    expect(part(readings, 'pre').hidden).toBe(true);
    readings.open('0/1');
    await settled();
    expect(part(readings, 'pre').textContent).toBe('0/1');
    expect(part(readings, 'select').value).toBe('0/1');
  });

  it('stays while steps go on, and goes with its graph', async () => {
    const readings = new Readings(key => Promise.resolve(key));
    readings.offer([['0/1', 'graph 1']]);
    readings.open('0/1');
    await settled();
    readings.offer([
      ['0/1', 'graph 1'],
      ['0/2', 'graph 2']
    ]);
    await settled();
    expect(part(readings, 'pre').textContent).toBe('0/1');
    readings.offer([['0/2', 'graph 2']]);
    await settled();
    expect(part(readings, 'pre').hidden).toBe(true);
  });

  it('says why it cannot be had', async () => {
    const readings = new Readings(() =>
      Promise.reject(new Error('found no graph'))
    );
    readings.offer([['0/1', 'graph 1']]);
    readings.open('0/1');
    await settled();
    expect(part(readings, 'pre').textContent).toBe('found no graph');
  });

  it('shows what was chosen last, whatever is answered later', async () => {
    const answers: (() => void)[] = [];
    const readings = new Readings(
      key =>
        new Promise(resolve => {
          answers.push(() => {
            resolve(key);
          });
        })
    );
    readings.offer([
      ['0/1', 'graph 1'],
      ['0/2', 'graph 2']
    ]);
    choose(readings, '0/1');
    choose(readings, '0/2');
    answers[1]?.();
    answers[0]?.();
    await settled();
    expect(part(readings, 'pre').textContent).toBe('0/2');
  });
});
