import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { Findings } from '../src/explorer/audit';
import type { SessionClient } from '../src/explorer/client';
import type { AuditFinding } from '../src/explorer/protocol';

const wrong: AuditFinding = {
  kind: 'bucket-incomplete',
  severity: 'wrong numbers',
  what: 'bucket 0 never completed on ranks 0, 1',
  since: 1,
  evidence: 'the backward of step 1 ended without a reduction',
  cause: 'these parameters took no part in the loss',
  remedy: 'pass find_unused_parameters=True',
  sure: 'certain',
  view: 'countdown',
  step: 1,
  ranks: [0, 1],
  names: ['second.weight', 'second.bias'],
  more_names: 0
};
const slow: AuditFinding = {
  ...wrong,
  kind: 'unused-search',
  severity: 'slow',
  view: 'plan',
  step: null,
  names: ['a', 'b', 'c', 'd', '<b>e</b>'],
  more_names: 3
};

function made(): { findings: Findings; lookAt: ReturnType<typeof vi.fn> } {
  const lookAt = vi.fn();
  const client = { lookAt } as unknown as SessionClient;
  return { findings: new Findings(client), lookAt };
}

describe('the findings of the audit', () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['performance'] });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  it('are counted in a badge, which opens and closes the list', () => {
    const { findings } = made();
    findings.draw(0, []);
    expect(findings.badge.hidden).toBe(true);
    findings.draw(2, [wrong, slow]);
    expect(findings.badge.textContent).toBe('⚑ 2 findings');
    expect(findings.badge.dataset['severity']).toBe('wrong numbers');
    expect(findings.list.hidden).toBe(true);
    findings.badge.click();
    expect(findings.list.hidden).toBe(false);
    expect(findings.badge.getAttribute('aria-expanded')).toBe('true');
    findings.badge.click(); // a double click
    expect(findings.list.hidden).toBe(false);
    vi.advanceTimersByTime(1000);
    findings.badge.click();
    expect(findings.list.hidden).toBe(true);
  });

  it('say the severity as a word, what to do, and lead to the step', () => {
    const { findings, lookAt } = made();
    findings.draw(2, [wrong, slow]);
    const rows = [...findings.list.querySelectorAll('li')];
    expect(rows.map(row => row.querySelector('span')?.textContent)).toEqual([
      '✕ wrong numbers',
      '◔ slow'
    ]);
    expect(rows[0]?.textContent).toContain(
      'To mend it: pass find_unused_parameters=True (certain).'
    );
    const links = findings.list.querySelectorAll('button');
    expect([...links].map(link => link.textContent)).toEqual([
      'step 1, Countdown',
      'Bucket Plan'
    ]);
    const wanted: string[] = [];
    findings.wanted.subscribe(view => {
      wanted.push(view);
    });
    links[0]?.click();
    expect(lookAt).toHaveBeenCalledWith(1);
    links[1]?.click();
    expect(lookAt).toHaveBeenCalledTimes(1);
    expect(wanted).toEqual(['countdown', 'plan']);
  });

  it('say what is counted and not listed', () => {
    const { findings } = made();
    findings.draw(1, []);
    expect(findings.list.textContent).toContain('A rank failed');
    findings.badge.click();
    expect(findings.list.hidden).toBe(false);
    findings.draw(23, [wrong, slow]);
    expect(findings.list.textContent).toContain('And 21 more');
    findings.draw(2, [wrong, slow]);
    expect(findings.list.querySelectorAll('li')).toHaveLength(2);
  });

  it('say that there are none once it has looked, and what it does not check', () => {
    const { findings } = made();
    findings.draw(0, [], true, ['12 of 90 steps went by', '<i>kind</i>: why']);
    expect(findings.badge.hidden).toBe(false);
    expect(findings.badge.textContent).toBe('✓ no findings');
    findings.badge.click();
    expect(findings.list.hidden).toBe(false);
    const told = [...findings.list.querySelectorAll('details li')];
    expect(told.map(one => one.textContent)).toEqual([
      '12 of 90 steps went by',
      '<i>kind</i>: why'
    ]);
    const details = findings.list.querySelector('details');
    details?.setAttribute('open', '');
    findings.draw(1, [wrong], true, ['13 of 99 steps went by']);
    expect(findings.badge.textContent).toBe('⚑ 1 finding');
    expect(findings.list.querySelector('details')).toBe(details);
    expect(details?.open).toBe(true);
    findings.draw(1, [wrong], true, []);
    expect(details?.hidden).toBe(true);
  });

  it('have all names that their sentence only counts', () => {
    const { findings } = made();
    findings.draw(2, [wrong, slow]);
    const [few, many] = [...findings.list.querySelectorAll('li')];
    expect(few?.querySelector('details')).toBe(null);
    expect(many?.querySelector('summary')?.textContent).toBe('All 8 names');
    expect(many?.querySelector('details')?.textContent).toContain(
      'a, b, c, d, <b>e</b> and 3 more'
    );
  });

  it('stay as they are while nothing changes, and go with the last', () => {
    const { findings } = made();
    findings.draw(1, [wrong]);
    findings.badge.click();
    const row = findings.list.querySelector('li');
    findings.draw(1, [{ ...wrong }]);
    expect(findings.list.querySelector('li')).toBe(row);
    findings.draw(0, []);
    expect(findings.badge.hidden).toBe(true);
    expect(findings.list.hidden).toBe(true);
  });
});
