import { FoundNote } from './act';
import type { Demonstrator } from './demonstrator';
import { element } from './dom';
import type { Demonstrated } from './protocol';
import { viewLabel } from './protocol';

/** What a demonstration found: whether it held, its two sentences. */
export class DemonstratedNote extends FoundNote<Demonstrated> {
  constructor(private readonly _demonstrator: Demonstrator) {
    super(_demonstrator, 'ddpviz-demonstrated', 'What the demonstration shows');
    this.draw();
  }

  protected override _parts(found: Demonstrated): HTMLElement[] {
    const verdict = found.held ? '✓ It holds here' : '✕ It does not hold here';
    const where =
      found.step < 0
        ? `Show the construction in ${viewLabel(found.view)}`
        : `Show step ${String(found.step)} in ${viewLabel(found.view)}`;
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
        this._button(where, () => {
          this._demonstrator.show();
        }),
        this._dismiss(),
        element('span', { class: 'ddpviz-quiet' }, `${found.remark}.`)
      )
    ];
  }
}
