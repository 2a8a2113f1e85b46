// @vitest-environment jsdom
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { SessionClient } from '../src/explorer/client';
import { Explorer } from '../src/explorer/explorer';
import type { SessionState } from '../src/explorer/protocol';
import { ScriptedTransport, frame, settled, state } from './support';

class Sizes {
  observe = vi.fn();
  disconnect = vi.fn();
}

const SWITCH = {
  name: 'forward_sync_buffers',
  label: 'buffer sync',
  explanation: 'Rank 0 sends its buffers before each forward.',
  kind: 'bool',
  value: true,
  group: 'first',
  needs: 're-wraps the model',
  disabled: null
};

let transport: ScriptedTransport;
let client: SessionClient;
let explorer: Explorer;
const kill = vi.fn(() =>
  Promise.resolve('Engines of ranks 0 and 1 were killed.')
);

beforeEach(() => {
  vi.stubGlobal('ResizeObserver', Sizes);
  vi.stubGlobal('matchMedia', () => ({
    matches: false,
    addEventListener: vi.fn(),
    removeEventListener: vi.fn()
  }));
  kill.mockClear();
  transport = new ScriptedTransport();
  transport.answers['switches'] = () => [SWITCH];
  transport.answers['predict'] = () => ({ needs: 'this', refused: null });
  transport.answers['set'] = () => ({ outcome: 're-wrapped' });
  transport.answers['demonstrations'] = () => [
    {
      family: 'Join',
      demonstrations: [
        { name: 'join', title: 'Join', view: 'buffers', claims: [] }
      ]
    }
  ];
  transport.answers['demonstrate'] = () => new Promise(() => undefined);
  client = new SessionClient(transport, 's1-1');
  client.learn(state());
  explorer = new Explorer(client, { unavailable: null, kill });
  document.body.replaceChildren(explorer.node);
});

afterEach(() => {
  explorer.dispose();
  client.dispose();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

function button(selector: string, text = ''): HTMLElement {
  const all = [...explorer.node.querySelectorAll<HTMLElement>(selector)];
  const found = all.find(one => (one.textContent ?? '').includes(text));
  if (found === undefined) {
    throw new Error(`nothing matches ${selector} ${text}`);
  }
  return found;
}

function twice(node: HTMLElement): void {
  node.click();
  node.click();
}

const problem = () => button('.ddpviz-problem').textContent;

describe('a button that is clicked twice quickly', () => {
  it.each<[string, Partial<SessionState>]>([
    ['start', {}],
    ['stop', { status: 'training' }],
    ['restart', {}]
  ])('%s is asked for once', async (name, change) => {
    client.learn(state(change));
    twice(button(`[data-action=${name}]`));
    await settled();
    // The answer is there, and the state that tells of it is not; no double click is so slow.
    const now = performance.now();
    vi.spyOn(performance, 'now').mockReturnValue(now + 600);
    button(`[data-action=${name}]`).click();
    await settled();
    expect(transport.of(name)).toHaveLength(1);
    expect(problem()).toBe('');
  });

  it('start can be stopped at once when the state tells of it', async () => {
    button('[data-action=start]').click();
    await settled();
    transport.send(frame(1, { status: 'training' }));
    await settled();
    expect(
      button('[data-action=stop]').getAttribute('aria-disabled')
    ).toBeNull();
  });

  it('kill asks, and kills nobody', () => {
    twice(button('[data-action=kill]'));
    expect(kill).not.toHaveBeenCalled();
    expect(button('.ddpviz-confirm').hidden).toBe(false);
    button('[data-action=kill]').dispatchEvent(
      new KeyboardEvent('keydown', { key: 'Escape', bubbles: true })
    );
    expect(button('.ddpviz-confirm').hidden).toBe(true);
  });

  it('changes a switch once, and applies it once', async () => {
    await settled();
    twice(button('[role=switch]'));
    await settled();
    expect(button('[role=switch]').getAttribute('aria-checked')).toBe('false');
    twice(button('.ddpviz-apply button', 'Apply'));
    await settled();
    expect(transport.of('set')).toHaveLength(1);
  });

  it('unfolds the demonstrations, and runs one once', async () => {
    twice(button('.ddpviz-demonstrations-toggle'));
    await settled();
    expect(button('.ddpviz-demonstrations').hidden).toBe(false);
    twice(button('.ddpviz-demonstrations button', 'Run it'));
    await settled();
    expect(transport.of('demonstrate')).toHaveLength(1);
  });

  it('pauses once, and goes two steps back', () => {
    client.learn(state({ follow_steps: [0, 7], step: 7 }));
    twice(button('.ddpviz-follow'));
    expect(client.step).toBe(7);
    twice(button('[aria-label="Previous step"]'));
    expect(client.step).toBe(5);
  });

  it('opens a tab once', () => {
    const tab = button('[role=tab]', 'Countdown');
    tab.click();
    const shown = button('[data-view=countdown]');
    tab.click();
    expect(button('[data-view=countdown]')).toBe(shown);
  });
});

describe('kill', () => {
  it('says what is lost and what is kept, and does it when confirmed', async () => {
    button('[data-action=kill]').click();
    const confirm = button('.ddpviz-confirm');
    expect(confirm.textContent).toContain('What was recorded stays');
    expect(confirm.textContent).toContain('are lost');
    expect(document.activeElement?.textContent).toBe('Keep them');
    button('.ddpviz-confirm button', 'Kill them').click();
    await settled();
    expect(kill).toHaveBeenCalledTimes(1);
    expect(confirm.hidden).toBe(true);
    expect(button('.ddpviz-action-reason').textContent).toContain(
      'were killed'
    );
  });

  it('keeps them where it is not confirmed, and gives the focus back', () => {
    const asks = button('[data-action=kill]');
    asks.click();
    button('.ddpviz-confirm').dispatchEvent(
      new KeyboardEvent('keydown', { key: 'Escape', bubbles: true })
    );
    expect(button('.ddpviz-confirm').hidden).toBe(true);
    expect(document.activeElement).toBe(asks);
    expect(kill).not.toHaveBeenCalled();
  });

  it('asks no longer where the session is closed', () => {
    button('[data-action=kill]').click();
    client.learn(state({ status: 'closed' }));
    expect(button('.ddpviz-confirm').hidden).toBe(true);
  });
});
