import type { Demonstrator } from './demonstrator';
import { element, once, show } from './dom';
import { Endings } from './emitter';
import type { Demonstrated } from './protocol';
import { viewLabel } from './protocol';

/** What a demonstration found: whether it held, its two sentences; until it is dismissed. */
export class DemonstratedNote {
  readonly node: HTMLElement;

  private readonly _endings = new Endings();
  private _shown: Demonstrated | null = null;

  constructor(private readonly _demonstrator: Demonstrator) {
    this.node = element('section', {
      class: 'ddpviz-demonstrated',
      attributes: {
        role: 'status',
        'aria-label': 'What the demonstration shows',
        tabindex: '-1'
      }
    });
    this._endings.add(
      _demonstrator.changed.subscribe(() => {
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
    const { found } = this._demonstrator;
    if (found === this._shown) {
      return;
    }
    this._shown = found;
    show(this.node, found !== null);
    this.node.replaceChildren(...(found === null ? [] : this._parts(found)));
  }

  private _parts(found: Demonstrated): HTMLElement[] {
    const verdict = found.held ? '✓ It holds here' : '✕ It does not hold here';
    const where =
      found.step < 0
        ? `Show the construction in ${viewLabel(found.view)}`
        : `Show step ${String(found.step)} in ${viewLabel(found.view)}`;
    const button = (text: string, press: () => void) =>
      element(
        'button',
        {
          class: 'ddpviz-button',
          attributes: { type: 'button' },
          on: { click: once(press) }
        },
        text
      );
    return [
      element(
        'p',
        { class: 'ddpviz-demonstrated-head' },
        element(
          'span',
          {
            class: 'ddpviz-held',
            attributes: { 'data-held': String(found.held) }
          },
          verdict
        ),
        element('strong', {}, `${found.title}.`)
      ),
      ...found.sentences.map(sentence => element('p', {}, sentence)),
      element(
        'div',
        { class: 'ddpviz-row' },
        button(where, () => {
          this._demonstrator.show();
        }),
        button('Dismiss', () => {
          this._demonstrator.dismiss();
        }),
        element('span', { class: 'ddpviz-quiet' }, `${found.remark}.`)
      )
    ];
  }
}
