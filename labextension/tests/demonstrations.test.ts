// @vitest-environment jsdom
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { SessionClient } from '../src/explorer/client';
import { whyNotDemonstrate } from '../src/explorer/demonstrator';
import { Explorer } from '../src/explorer/explorer';
import type { Demonstrated, SessionState } from '../src/explorer/protocol';
import { ScriptedTransport, frame, settled, state } from './support';

class Sizes {
  observe = vi.fn();
  disconnect = vi.fn();
}

const EVIL = '<img src=x onerror="window.hit = 1">';

const FOUND: Demonstrated = {
  name: 'head-of-line',
  title: 'A bucket that is full waits for the one before it',
  held: true,
  sentences: ['Full in the order 5, 4, 3.', 'Launched in the order 0, 1, 2.'],
  view: 'countdown',
  step: 12,
  remark: 'The session is idle'
};

let transport: ScriptedTransport;
let client: SessionClient;
let explorer: Explorer | undefined;

beforeEach(() => {
  vi.stubGlobal('ResizeObserver', Sizes);
  vi.stubGlobal('matchMedia', () => ({
    matches: false,
    addEventListener: vi.fn(),
    removeEventListener: vi.fn()
  }));
  Element.prototype.scrollIntoView = vi.fn();
  transport = new ScriptedTransport();
  transport.answers['switches'] = () => [];
  transport.answers['demonstrations'] = () => [
    {
      family: 'Order of the buckets',
      demonstrations: [
        {
          name: 'head-of-line',
          title: FOUND.title,
          view: 'countdown',
          claims: [{ claim: `They wait. ${EVIL}`, verdict: 'true' }]
        }
      ]
    }
  ];
  transport.answers['demonstrate'] = () => FOUND;
  client = new SessionClient(transport, 's1-1');
  client.learn(state());
});

afterEach(() => {
  explorer?.dispose();
  client.dispose();
  vi.unstubAllGlobals();
});

function node(selector: string): HTMLElement {
  const found = explorer?.node.querySelector(selector);
  if (!(found instanceof HTMLElement)) {
    throw new Error(`nothing matches ${selector}`);
  }
  return found;
}

async function opened(): Promise<void> {
  explorer = new Explorer(client);
  document.body.replaceChildren(explorer.node);
  node('.ddpviz-demonstrations-toggle').click();
  await settled();
}

const fold = () => node('.ddpviz-demonstrations');
const run = () => node('.ddpviz-demonstrations .ddpviz-mod-accept');
const note = () => node('.ddpviz-demonstrated');

describe('the menu of demonstrations', () => {
  it('lists them by family, with what the article says as text', async () => {
    await opened();
    expect(fold().querySelector('optgroup')?.label).toBe(
      'Order of the buckets'
    );
    expect(fold().textContent).toContain(EVIL);
    expect(fold().textContent).toContain('(true)');
    expect(document.querySelector('img')).toBeNull();
    expect(
      node('.ddpviz-demonstrations-toggle').getAttribute('aria-expanded')
    ).toBe('true');
  });

  it('shows what was found at its step, in its view, until it is dismissed', async () => {
    await opened();
    run().click();
    await settled();
    expect(transport.of('demonstrate')).toEqual([
      { session: 's1-1', name: 'head-of-line' }
    ]);
    for (const text of [...FOUND.sentences, FOUND.title, FOUND.remark]) {
      expect(note().textContent).toContain(text);
    }
    expect(note().textContent).toContain('✓ It holds here');
    // Also a step that no state has told of yet.
    expect(client.step).toBe(12);
    expect(node('[role=tab][aria-selected=true]').textContent).toBe(
      'Countdown'
    );
    // The sentences stand right above the view that they are about; the timeline is still there.
    expect(note().nextElementSibling?.className).toBe('ddpviz-views');
    expect(node('[data-view=timeline]').isConnected).toBe(true);
    transport.send(frame(1));
    expect(note().hidden).toBe(false);
    const buttons = [...note().querySelectorAll('button')];
    buttons.find(one => one.textContent === 'Dismiss')?.click();
    expect(note().hidden).toBe(true);
  });

  it('says so where it does not hold', async () => {
    transport.answers['demonstrate'] = () => ({ ...FOUND, held: false });
    await opened();
    run().click();
    await settled();
    expect(note().textContent).toContain('✕ It does not hold here');
  });

  it('goes on from the keyboard at what was found', async () => {
    await opened();
    run().focus();
    run().click();
    await settled();
    expect(document.activeElement).toBe(note());
  });

  it('shows a view that was not among those wanted', async () => {
    explorer = new Explorer(client, null, ['timeline']);
    document.body.replaceChildren(explorer.node);
    node('.ddpviz-demonstrations-toggle').click();
    await settled();
    run().click();
    await settled();
    expect(node('[data-view=countdown]').isConnected).toBe(true);
  });

  it('tells what the kernel refused, and stays open', async () => {
    transport.answers['demonstrate'] = () => {
      throw new Error('the demonstration was stopped');
    };
    await opened();
    run().click();
    await settled();
    expect(fold().hidden).toBe(false);
    expect(node('.ddpviz-demonstrations .ddpviz-problem').textContent).toBe(
      'the demonstration was stopped'
    );
  });

  it('runs nothing where it says why not', async () => {
    await opened();
    const others: [Partial<SessionState>, string][] = [
      [{ status: 'training' }, 'training runs: stop it first'],
      [{ status: 'failed' }, 'restart first'],
      [{ status: 'closed' }, 'the session is closed'],
      [{ status: 'closed', recording: true }, 'this is a recording'],
      [{ status: 'demonstrating' }, 'one runs'],
      [{ world_size: 1 }, 'ddpviz.Session(engines=2)']
    ];
    for (const [change, why] of others) {
      client.learn(state(change));
      expect(fold().textContent).toContain(why);
      expect(run().getAttribute('aria-disabled')).toBe('true');
      run().click();
    }
    await settled();
    expect(transport.of('demonstrate')).toEqual([]);
    expect(whyNotDemonstrate(state(), true)).toBeNull();
    expect(whyNotDemonstrate(state(), false)).toContain('not answer');
  });
});
