import { afterEach, beforeEach, describe, expect, it } from 'vitest';

import { SessionClient } from '../src/explorer/client';
import { numbersIn, valueText } from '../src/explorer/controls';
import type { Switch } from '../src/explorer/protocol';
import { SwitchColumn } from '../src/explorer/switches';
import { ScriptedTransport, settled } from './support';

function one(change: Partial<Switch> = {}): Switch {
  return {
    name: 'forward_sync_buffers',
    label: 'buffer sync',
    explanation: 'Rank 0 sends its buffers before each forward.',
    kind: 'bool',
    value: true,
    group: 'first',
    needs: 're-wraps the model on all ranks; weights stay',
    disabled: null,
    ...change
  };
}

let transport: ScriptedTransport;
let client: SessionClient;
let column: SwitchColumn | undefined;

beforeEach(() => {
  transport = new ScriptedTransport();
  client = new SessionClient(transport, 's1-1');
});

afterEach(() => {
  column?.dispose();
  client.dispose();
});

async function shown(...switches: Switch[]): Promise<SwitchColumn> {
  transport.answers['switches'] = () => switches;
  transport.answers['predict'] = () => ({ needs: 'needs this', refused: null });
  column = new SwitchColumn(client);
  document.body.replaceChildren(column.node);
  await settled();
  return column;
}

function find(selector: string): HTMLElement;
function find<T extends HTMLElement>(selector: string, type: new () => T): T;
function find(selector: string, type = HTMLElement): HTMLElement {
  const found = column?.node.querySelector(selector);
  if (!(found instanceof type)) {
    throw new Error(`nothing matches ${selector}`);
  }
  return found;
}
const bar = () => find('.ddpviz-apply');
const press = (text: string) => {
  const button = [...(column?.node.querySelectorAll('button') ?? [])].find(
    one => one.textContent === text
  );
  button?.click();
};

describe('switches', () => {
  it('tell what a change takes before it is made', async () => {
    await shown(one());
    expect(bar().hidden).toBe(true);
    find('[role=switch]', HTMLButtonElement).click();
    await settled();
    expect(transport.of('predict')).toEqual([
      { session: 's1-1', values: { forward_sync_buffers: false } }
    ]);
    expect(bar().hidden).toBe(false);
    expect(bar().textContent).toContain('needs this');
    expect(find('.ddpviz-was').textContent).toBe('was on');
    expect(transport.of('set')).toEqual([]);
  });

  it('are described by what they do, and by why they are off', async () => {
    await shown(one({ disabled: 'the model has no buffers' }));
    const ids = find('[role=switch]').getAttribute('aria-describedby') ?? '';
    const told = ids
      .split(' ')
      .map(id => document.getElementById(id)?.textContent);
    expect(told.join(' ')).toContain('Rank 0 sends its buffers');
    expect(told.join(' ')).toContain('the model has no buffers');
  });

  it('tell what a change did', async () => {
    await shown(one());
    transport.answers['set'] = () => ({ outcome: 're-wrapped' });
    find('[role=switch]', HTMLButtonElement).click();
    await settled();
    press('Apply');
    await settled();
    expect(transport.of('set')).toEqual([
      { session: 's1-1', values: { forward_sync_buffers: false } }
    ]);
    expect(find('.ddpviz-outcome').textContent).toBe(
      'buffer sync: re-wrapped.'
    );
    expect(bar().hidden).toBe(true);
  });

  it('cannot be applied where torch would refuse, and say why', async () => {
    await shown(one());
    transport.answers['predict'] = () => ({
      needs: '',
      refused: 'static_graph cannot be with find_unused_parameters'
    });
    find('[role=switch]', HTMLButtonElement).click();
    await settled();
    expect(bar().textContent).toContain('static_graph cannot be');
    expect(find('.ddpviz-mod-accept', HTMLButtonElement).disabled).toBe(true);
  });

  it('come back on undo', async () => {
    await shown(one());
    const toggle = find('[role=switch]');
    toggle.click();
    await settled();
    expect(toggle.getAttribute('aria-checked')).toBe('false');
    press('Undo');
    expect(toggle.getAttribute('aria-checked')).toBe('true');
    expect(bar().hidden).toBe(true);
  });

  it('keep a draft while the values are read again', async () => {
    await shown(one());
    find('[role=switch]').click();
    client.switchesChanged.emit(undefined);
    await settled();
    expect(find('[role=switch]').getAttribute('aria-checked')).toBe('false');
  });

  it('that are off show why', async () => {
    await shown(
      one({ disabled: 'SyncBatchNorm needs a GPU' }),
      one({ name: 'static_graph' })
    );
    expect(find('[role=switch]', HTMLButtonElement).disabled).toBe(true);
    expect(find('[data-switch] .ddpviz-reason').textContent).toBe(
      'SyncBatchNorm needs a GPU'
    );
    expect(find('[data-switch] .ddpviz-reason').hidden).toBe(false);
  });

  it('say a reason once that all of them have', async () => {
    const disabled = 'a rank failed: press Restart first';
    await shown(one({ disabled }), one({ name: 'static_graph', disabled }));
    const visible = [
      ...(column?.node.querySelectorAll('.ddpviz-reason') ?? [])
    ].filter(node => !(node as HTMLElement).hidden);
    expect(visible.map(node => node.textContent)).toEqual([
      `Switches are off: ${disabled}.`
    ]);
  });

  it('are off while the kernel is not connected', async () => {
    await shown(one());
    transport.become('disconnected');
    expect(find('[role=switch]', HTMLButtonElement).disabled).toBe(true);
  });

  it('fold what matters less', async () => {
    await shown(one(), one({ name: 'static_graph', group: 'more' }));
    expect(find('details [data-switch=static_graph]')).toBeTruthy();
    expect(find('details', HTMLDetailsElement).open).toBe(false);
  });

  it('have a logarithmic slider for what spans decades', async () => {
    await shown(
      one({
        name: 'bucket_cap_mb',
        kind: 'log-slider',
        value: 1,
        min: 0.01,
        max: 100
      })
    );
    const slider = find('input[type=range]', HTMLInputElement);
    expect(slider.value).toBe('50');
    slider.value = '75';
    slider.dispatchEvent(new Event('input'));
    expect(find('input[type=number]', HTMLInputElement).value).toBe('10');
    slider.dispatchEvent(new Event('change'));
    await settled();
    expect(transport.of('predict').at(-1)).toMatchObject({
      values: { bucket_cap_mb: 10 }
    });
  });

  it('are not drawn anew by a field that tells of its value twice', async () => {
    await shown(
      one({ name: 'batch_size', kind: 'int', value: 8, min: 1, max: null })
    );
    const field = find('input', HTMLInputElement);
    field.value = '16';
    field.dispatchEvent(new Event('change'));
    await settled();
    const asked = transport.of('predict').length;
    field.dispatchEvent(new Event('change')); // it loses the focus, to Apply
    expect(bar().textContent).toContain('needs this');
    await settled();
    expect(transport.of('predict')).toHaveLength(asked);
  });

  it('have a field for each rank where a value is per rank', async () => {
    await shown(
      one({ name: 'delay_ms', kind: 'float', value: { '0': 0, '1': 0 } })
    );
    const fields = column?.node.querySelectorAll<HTMLInputElement>('input');
    const second = fields?.[1];
    if (second === undefined) {
      throw new Error('no field for rank 1');
    }
    second.value = '50';
    second.dispatchEvent(new Event('change'));
    await settled();
    expect(transport.of('predict').at(-1)).toMatchObject({
      values: { delay_ms: { '0': 0, '1': 50 } }
    });
  });

  it('stay in order where another workload has other ones', async () => {
    await shown(
      one({ name: 'width', kind: 'int', value: 8, max: 16 }),
      one({ name: 'workload', kind: 'choice', choices: ['mlp'], value: 'mlp' })
    );
    const others = [
      one({ name: 'width', kind: 'int', value: 64, max: 128 }),
      one({ name: 'layers', kind: 'int', value: 2 }),
      one({ name: 'workload', kind: 'choice', choices: ['gpt'], value: 'gpt' })
    ];
    transport.answers['switches'] = () => others;
    client.switchesChanged.emit(undefined);
    await settled();
    const rows = column?.node.querySelectorAll<HTMLElement>('[data-switch]');
    expect([...(rows ?? [])].map(row => row.dataset['switch'])).toEqual([
      'width',
      'layers',
      'workload'
    ]);
    expect(find('.ddpviz-switches > .ddpviz-reason').hidden).toBe(true);
  });

  it('show a choice that is none of theirs', async () => {
    await shown(
      one({ kind: 'choice', choices: [null, 'fp16'], value: 'my_hook' })
    );
    const select = find('select', HTMLSelectElement);
    expect(select.options[select.selectedIndex]?.text).toBe('my_hook');
  });
});

describe('values', () => {
  it('of a list are numbers with commas between', () => {
    expect(numbersIn('1, 25;3')).toEqual([1, 25, 3]);
    expect(numbersIn(' ')).toBeNull();
    expect(numbersIn('1, x')).toEqual([1, 'x']);
  });

  it('read as a person would say them', () => {
    expect(valueText(null)).toBe('none');
    expect(valueText(true)).toBe('on');
    expect(valueText({ '0': 0, '1': 50 })).toBe('rank 1: 50');
  });
});

describe('keys in a field', () => {
  it('are its own, and Enter takes the value', async () => {
    await shown(one({ name: 'batch_size', kind: 'int', value: 8 }));
    const field = find('input', HTMLInputElement);
    expect(field.hasAttribute('data-lm-suppress-shortcuts')).toBe(true);
    let heard = 0;
    document.body.addEventListener('keydown', () => {
      heard += 1;
    });
    field.focus();
    field.value = '16';
    for (const key of ['ArrowLeft', 'Enter']) {
      field.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
    }
    await settled();
    expect(heard).toBe(0);
    expect(find('.ddpviz-was').textContent).toBe('was 8');
    expect(bar().hidden).toBe(false);
  });
});
