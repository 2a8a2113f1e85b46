import { FoundNote } from './act';
import type { Comparer } from './comparer';
import { element } from './dom';
import type { Compared, Json, Unit, Values } from './protocol';

/** What a comparison found: its verdict and its table. */
export class ComparedNote extends FoundNote<Compared> {
  constructor(comparer: Comparer) {
    super(comparer, 'ddpviz-compared', 'What the comparison found');
    this.draw();
  }

  protected override _parts(found: Compared): HTMLElement[] {
    return [
      element('p', {}, element('strong', {}, `${sentence(found.verdict)}.`)),
      element('div', { class: 'ddpviz-compared-table' }, table(found)),
      element(
        'div',
        { class: 'ddpviz-row' },
        this._dismiss(),
        element(
          'span',
          { class: 'ddpviz-quiet' },
          `Medians; in brackets the lowest and highest median of a round. ${found.remark}.`
        )
      )
    ];
  }
}

function table(found: Compared): HTMLTableElement {
  const head = (text: string) =>
    element('th', { attributes: { scope: 'col' } }, text);
  const row = (of: Values) =>
    element(
      'tr',
      {},
      element(
        'th',
        { attributes: { scope: 'row' } },
        text(of['configuration'])
      ),
      ...cells(found, of)
    );
  const heads = found.columns.map(column => head(column.label));
  return element(
    'table',
    {},
    element('thead', {}, element('tr', {}, head('configuration'), ...heads)),
    element('tbody', {}, ...found.rows.map(row))
  );
}

function cells(found: Compared, row: Values): HTMLElement[] {
  const refused = text(row['refused']);
  if (refused !== '' && row['rounds'] === 0) {
    const span = String(found.columns.length);
    return [element('td', { attributes: { colspan: span } }, refused)];
  }
  return found.columns.map(({ name, unit }) =>
    element('td', {}, told(row[name], unit) + band(row, name, unit))
  );
}

function band(row: Values, name: string, unit: Unit): string {
  const low = row[`${name}_low`];
  const high = row[`${name}_high`];
  return typeof low === 'number' && typeof high === 'number'
    ? ` (${told(low, unit)} to ${told(high, unit)})`
    : '';
}

/** A value in its unit, or that it is not known. */
export function told(value: Json | undefined, unit: Unit): string {
  if (typeof value === 'boolean') {
    return value ? 'yes' : 'no';
  }
  if (typeof value !== 'number') {
    return unit === 'flag' ? 'it has none' : 'not known';
  }
  switch (unit) {
    case 'ms':
      return value < 1000 ? `${digits(value)} ms` : `${digits(value / 1000)} s`;
    case 'bytes':
      return value < 2 ** 20
        ? `${digits(value / 2 ** 10)} KiB`
        : `${digits(value / 2 ** 20)} MiB`;
    case 'relative':
      return value === 0 ? 'equal' : `${value.toExponential(1)} off`;
    case 'count':
    case 'flag':
      return digits(value);
  }
}

/** Three digits, or all before the point. */
function digits(value: number): string {
  return value >= 100
    ? String(Math.round(value))
    : String(Number(value.toPrecision(3)));
}

function text(value: Json | undefined): string {
  return typeof value === 'string' ? value : '';
}

function sentence(words: string): string {
  return words.charAt(0).toUpperCase() + words.slice(1);
}
