import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

import { describe, expect, it } from 'vitest';

import { SessionClient } from '../src/explorer/client';
import { StateLine } from '../src/explorer/stateline';
import { SwitchColumn } from '../src/explorer/switches';
import { ScriptedTransport, settled, state } from './support';

const EVIL =
  '<img src=x onerror="window.hit = 1"><script>window.hit = 1</script>';

describe('names of the user', () => {
  it('are text wherever they are shown', async () => {
    const transport = new ScriptedTransport();
    transport.answers['switches'] = () => [
      {
        name: EVIL,
        label: EVIL,
        explanation: EVIL,
        kind: 'choice',
        value: EVIL,
        choices: [EVIL],
        group: 'first',
        needs: EVIL,
        disabled: EVIL
      }
    ];
    const client = new SessionClient(transport, 's1-1');
    client.learn(
      state({
        workload: EVIL,
        reason: EVIL,
        hint: EVIL,
        failure: { message: EVIL, rank: 0, step: 1 }
      })
    );
    const line = new StateLine(client);
    const column = new SwitchColumn(client);
    document.body.replaceChildren(line.node, column.node);
    await settled();
    expect(document.body.textContent).toContain(EVIL);
    expect(document.querySelector('img, script')).toBeNull();
    line.dispose();
    column.dispose();
    client.dispose();
  });

  it('are never parsed: nothing in the sources makes elements from text', () => {
    const root = join(import.meta.dirname, '..', 'src');
    const parses = /innerHTML|outerHTML|insertAdjacentHTML|document\.write/;
    const guilty = readdirSync(root, { recursive: true, encoding: 'utf8' })
      .filter(path => path.endsWith('.ts'))
      .filter(path => parses.test(readFileSync(join(root, path), 'utf8')));
    expect(guilty).toEqual([]);
  });
});
