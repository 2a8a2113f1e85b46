import { element, show } from './dom';

/** Sentences below a figure, folded where there is little room. */
export class Facts {
  readonly node: HTMLDetailsElement;

  private readonly _list: HTMLElement;
  private _shown = '';

  constructor(folded: boolean) {
    this._list = element('ul');
    this.node = element(
      'details',
      { class: 'ddpviz-fold ddpviz-figure-facts' },
      element('summary', {}, 'In words'),
      this._list
    );
    this.node.open = !folded;
    show(this.node, false);
  }

  /** Only where they differ, so that a selection of text lasts. */
  tell(facts: readonly string[]): void {
    const shown = JSON.stringify(facts);
    if (shown !== this._shown) {
      this._shown = shown;
      this._list.replaceChildren(...facts.map(fact => element('li', {}, fact)));
      show(this.node, facts.length > 0);
    }
  }
}
