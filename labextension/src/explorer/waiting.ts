import { element, show } from './dom';
import { number } from './format';
import type { RankWaiting } from './protocol';

/** While a collective hangs: every rank, what it is in, and the line that it is at. */
export class WaitingTable {
  readonly node: HTMLElement;

  private readonly _rows = element('tbody');
  private _shown = '';

  constructor() {
    const heads = ['rank', '', 'collective', 'for', 'at'];
    this.node = element(
      'div',
      { class: 'ddpviz-hang' },
      element(
        'table',
        { attributes: { 'aria-label': 'Who waits for whom' } },
        element(
          'thead',
          {},
          element(
            'tr',
            {},
            ...heads.map(text =>
              element('th', { attributes: { scope: 'col' } }, text)
            )
          )
        ),
        this._rows
      )
    );
    show(this.node, false);
  }

  draw(ranks: readonly RankWaiting[]): void {
    const now = JSON.stringify(ranks);
    if (now === this._shown) {
      return;
    }
    this._shown = now;
    this._rows.replaceChildren(...ranks.map(row));
    show(this.node, ranks.length > 0);
  }
}

function row(one: RankWaiting): HTMLElement {
  const late = one.state !== 'in it';
  return element(
    'tr',
    late ? { class: 'ddpviz-mod-late' } : {},
    element('td', {}, String(one.rank)),
    element('td', {}, `${late ? '✕' : '◔'} ${one.state}`),
    element('td', { title: names(one) }, what(one)),
    element('td', {}, `${number(one.seconds)} s`),
    at(one)
  );
}

function what(one: RankWaiting): string {
  return one.size === '' ? one.collective : `${one.collective}, ${one.size}`;
}

function names(one: RankWaiting): string {
  const more =
    one.more_parameters > 0 ? ` and ${String(one.more_parameters)} more` : '';
  return `${one.parameters.join(', ')}${more}`;
}

/** The file's name and line; the whole path and the line's code for who points at it. */
function at(one: RankWaiting): HTMLElement {
  if (one.where === '') {
    return element('td', { class: 'ddpviz-quiet' }, 'not known yet');
  }
  const file = one.where.split(/[\\/]/).at(-1) ?? one.where;
  const inside =
    one.function === '' || one.function === '<module>'
      ? ''
      : ` in ${one.function.split('.').at(-1) ?? ''}`;
  return element(
    'td',
    { title: one.where },
    `${file}${inside}`,
    one.code === '' ? null : element('code', {}, one.code)
  );
}
