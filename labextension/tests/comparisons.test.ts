// @vitest-environment jsdom
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { SessionClient } from '../src/explorer/client';
import { told } from '../src/explorer/compared';
import { whyNotCompare } from '../src/explorer/comparer';
import { Explorer } from '../src/explorer/explorer';
import type { Compared } from '../src/explorer/protocol';
import { ScriptedTransport, settled, state } from './support';

class Sizes {
  observe = vi.fn();
  disconnect = vi.fn();
}

const EVIL = '<img src=x onerror="window.hit = 1">';

const FOUND: Compared = {
  verdict: `not told apart: eager and ${EVIL}`,
  columns: [
    { name: 'step_ms', label: 'step', unit: 'ms' },
    { name: 'buffers_synced', label: 'buffers synced', unit: 'flag' }
  ],
  rows: [
    {
      configuration: 'eager',
      step_ms: 12.34,
      step_ms_low: 12,
      step_ms_high: 1300,
      buffers_synced: true,
      rounds: 3,
      refused: ''
    },
    { configuration: EVIL, rounds: 0, refused: `it cannot. ${EVIL}` }
  ],
  remark: 'The session is idle'
};

let transport: ScriptedTransport;
let client: SessionClient;
let explorer: Explorer;

beforeEach(() => {
  vi.stubGlobal('ResizeObserver', Sizes);
  vi.stubGlobal('matchMedia', () => ({
    matches: false,
    addEventListener: vi.fn(),
    removeEventListener: vi.fn()
  }));
  transport = new ScriptedTransport();
  transport.answers['switches'] = () => [];
  transport.answers['comparable'] = () => ({
    modes: [
      { name: 'eager', disabled: null, remark: '' },
      { name: 'ddp_optimizer', disabled: null, remark: EVIL },
      { name: 'python_reducer', disabled: `not here ${EVIL}`, remark: '' }
    ],
    backends: [
      { name: 'inductor', disabled: 'no compiler', remark: '' },
      { name: 'aot_eager', disabled: null, remark: '' }
    ]
  });
  transport.answers['compare'] = () => FOUND;
  client = new SessionClient(transport, 's1-1');
  client.learn(state());
  explorer = new Explorer(client);
  document.body.replaceChildren(explorer.node);
});

afterEach(() => {
  explorer.dispose();
  client.dispose();
  vi.unstubAllGlobals();
});

function node(selector: string): HTMLElement {
  const found = explorer.node.querySelector(selector);
  if (!(found instanceof HTMLElement)) {
    throw new Error(`nothing matches ${selector}`);
  }
  return found;
}

const fold = () => node('.ddpviz-comparisons');
const run = () => node('.ddpviz-comparisons .ddpviz-mod-accept');
const note = () => node('.ddpviz-compared');
const box = (mode: string) =>
  node(`.ddpviz-comparisons input[value=${mode}]`) as HTMLInputElement;

async function opened(): Promise<void> {
  node('.ddpviz-comparisons-toggle').click();
  await settled();
}

describe('the comparison of compile modes', () => {
  it('asks for them once, and says why some cannot be had', async () => {
    expect(transport.of('comparable')).toEqual([]);
    await opened();
    client.learn(state());
    await settled();
    expect(transport.of('comparable')).toEqual([{ session: 's1-1' }]);
    expect(box('eager').checked).toBe(true);
    expect(box('python_reducer').disabled).toBe(true);
    expect(box('python_reducer').checked).toBe(false);
    expect(fold().textContent).toContain(`not here ${EVIL}`);
    const backend = node('.ddpviz-comparisons select') as HTMLSelectElement;
    expect(backend.value).toBe('aot_eager');
    expect(document.querySelector('img')).toBeNull();
  });

  it('compares what is ticked, and shows the table until it is dismissed', async () => {
    await opened();
    run().click();
    await settled();
    expect(transport.of('compare')).toEqual([
      {
        session: 's1-1',
        modes: ['eager', 'ddp_optimizer'],
        backend: 'aot_eager',
        rounds: 3
      }
    ]);
    expect(fold().hidden).toBe(true);
    expect(note().querySelector('strong')?.textContent).toBe(
      `Not told apart: eager and ${EVIL}.`
    );
    const cells = [...note().querySelectorAll('td')].map(
      one => one.textContent
    );
    expect(cells).toEqual([
      '12.3 ms (12 ms to 1.3 s)',
      'yes',
      `it cannot. ${EVIL}`
    ]);
    expect(document.querySelector('img')).toBeNull();
    note().querySelector('button')?.click();
    expect(note().hidden).toBe(true);
  });

  it('needs two modes and two rounds', async () => {
    await opened();
    box('eager').click();
    expect(run().title).toBe('tick two modes at least');
    run().click();
    box('eager').click();
    const rounds = node(
      '.ddpviz-comparisons input[type=number]'
    ) as HTMLInputElement;
    rounds.value = '1';
    rounds.dispatchEvent(new Event('input'));
    expect(run().title).toContain('expected 2 to 20 rounds');
    run().click();
    expect(transport.of('compare')).toEqual([]);
  });

  it('tells in the fold what went wrong, as when it was stopped', async () => {
    transport.answers['compare'] = () => {
      throw new Error('the comparison was stopped');
    };
    await opened();
    run().click();
    await settled();
    expect(fold().hidden).toBe(false);
    expect(node('.ddpviz-comparisons .ddpviz-problem').textContent).toBe(
      'the comparison was stopped'
    );
  });

  it('waits for a session that is busy, and asks then', async () => {
    client.learn(state({ status: 'training' }));
    await opened();
    expect(fold().textContent).toContain('training runs: stop it first');
    expect(transport.of('comparable')).toEqual([]);
    client.learn(state());
    await settled();
    expect(transport.of('comparable')).toHaveLength(1);
  });

  it('asks again for what could not be had when it is opened anew', async () => {
    transport.answers['comparable'] = () => {
      throw new Error('rank 0 did not answer');
    };
    await opened();
    expect(fold().textContent).toContain('rank 0 did not answer');
    client.learn(state());
    await settled();
    expect(transport.of('comparable')).toHaveLength(1);
  });
});

describe('what is told of a comparison', () => {
  it('has three digits and a unit', () => {
    expect(told(0.1234, 'ms')).toBe('0.123 ms');
    expect(told(61_234, 'ms')).toBe('61.2 s');
    expect(told(3_933_136, 'bytes')).toBe('3.75 MiB');
    expect(told(512, 'bytes')).toBe('0.5 KiB');
    expect(told(5, 'count')).toBe('5');
    expect(told(0, 'relative')).toBe('equal');
    expect(told(1.23e-7, 'relative')).toBe('1.2e-7 off');
    expect(told(false, 'flag')).toBe('no');
    expect(told(null, 'flag')).toBe('it has none');
    expect(told(null, 'ms')).toBe('not known');
  });

  it.each([
    ['comparing', 'one runs: wait for it, or stop it'],
    ['demonstrating', 'a demonstration runs: wait for it, or stop it'],
    ['failed', 'a rank failed: restart first']
  ] as const)('why not while %s', (status, why) => {
    expect(whyNotCompare(state({ status }), true)).toBe(why);
  });

  it('needs a workload, and ranks that run', () => {
    expect(whyNotCompare(state({ workload: '' }), true)).toContain('load(');
    expect(whyNotCompare(state({ recording: true }), true)).toContain(
      'ddpviz.Session()'
    );
    expect(whyNotCompare(state(), true)).toBeNull();
  });
});
