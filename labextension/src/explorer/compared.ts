import type { Comparer } from './comparer';
import { element, once, show } from './dom';
import { Endings } from './emitter';
import type { Compared, Json, Unit, Values } from './protocol';

/** What a comparison found: its verdict and its table, until it is dismissed. */
export class ComparedNote {
  readonly node: HTMLElement;

  private readonly _endings = new Endings();
  private _shown: Compared | null = null;

  constructor(private readonly _comparer: Comparer) {
    this.node = element('section', {
      class: 'ddpviz-compared',
      attributes: {
        role: 'status',
        'aria-label': 'What the comparison found',
        tabindex: '-1'
      }
    });
    this._endings.add(
      _comparer.changed.subscribe(() => {
        this._draw();
      })
    );
    this._draw();
    show(this.node, this._shown !== null);
  }

  dispose(): void {
    this._endings.end();
  }

  private _draw(): void {
    const { found } = this._comparer;
    if (found === this._shown) {
      return;
    }
    this._shown = found;
    show(this.node, found !== null);
    this.node.replaceChildren(...(found === null ? [] : this._parts(found)));
  }

  private _parts(found: Compared): HTMLElement[] {
    const dismiss = once(() => {
      this._comparer.dismiss();
    });
    return [
      element('p', {}, element('strong', {}, `${sentence(found.verdict)}.`)),
      element('div', { class: 'ddpviz-compared-table' }, table(found)),
      element(
        'div',
        { class: 'ddpviz-row' },
        element(
          'button',
          {
            class: 'ddpviz-button',
            attributes: { type: 'button' },
            on: { click: dismiss }
          },
          'Dismiss'
        ),
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
