import { describe, expect, it } from 'vitest';

import type { RankWaiting } from '../src/explorer/protocol';
import { WaitingTable } from '../src/explorer/waiting';

const inside: RankWaiting = {
  rank: 0,
  state: 'in it',
  collective: 'allreduce 17 (bucket 2)',
  size: '1.2 MiB',
  seconds: 12.3,
  where: '/home/me/train.py:12',
  function: 'main',
  code: 'loss.backward()',
  parameters: ['a.weight', 'b.weight'],
  more_parameters: 3
};
const late: RankWaiting = {
  ...inside,
  rank: 1,
  state: 'has not entered it',
  collective: '',
  size: '',
  where: '/home/me/train.py:88',
  function: 'Trainer.validate',
  code: 'time.sleep(9)',
  parameters: [],
  more_parameters: 0
};

describe('the table of a hang', () => {
  it('has a row per rank, and marks the one that is missing', () => {
    const table = new WaitingTable();
    expect(table.node.hidden).toBe(true);
    table.draw([inside, late]);
    expect(table.node.hidden).toBe(false);
    const rows = [...table.node.querySelectorAll('tbody tr')];
    const cells = rows.map(row =>
      [...row.querySelectorAll('td')].map(cell => cell.textContent)
    );
    expect(cells[0]).toEqual([
      '0',
      '◔ in it',
      'allreduce 17 (bucket 2), 1.2 MiB',
      '12.3 s',
      'train.py:12 in mainloss.backward()'
    ]);
    expect(cells[1]?.[4]).toBe('train.py:88 in validatetime.sleep(9)');
    expect(rows.map(row => row.className)).toEqual(['', 'ddpviz-mod-late']);
    const bucket = rows[0]?.querySelectorAll('td')[2];
    expect(bucket?.title).toBe('a.weight, b.weight and 3 more');
  });

  it('goes when nobody waits', () => {
    const table = new WaitingTable();
    table.draw([inside, late]);
    table.draw([]);
    expect(table.node.hidden).toBe(true);
  });

  it('takes names as text', () => {
    const table = new WaitingTable();
    const evil = '<img src=x onerror="window.hit = 1">';
    table.draw([{ ...late, where: evil, function: evil, code: evil }]);
    expect(table.node.querySelector('img')).toBeNull();
    expect(table.node.textContent).toContain(evil);
  });
});
