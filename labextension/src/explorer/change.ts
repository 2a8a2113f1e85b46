import { element, once, setText, show } from './dom';

/**
 * What a change of switches takes, the buttons that apply and undo it, and what it did.
 *
 * It stands under the switch that was changed last, next in the order of the keyboard.
 */
export class ChangeBar {
  readonly node: HTMLElement;

  private readonly _bar: HTMLElement;
  private readonly _text: HTMLElement;
  private readonly _apply: HTMLButtonElement;
  private readonly _undo: HTMLButtonElement;
  private readonly _outcome: HTMLElement;

  constructor(apply: () => void, undo: () => void) {
    const button = (text: string, press: () => void, kind = '') =>
      element(
        'button',
        {
          class: `ddpviz-button ${kind}`,
          attributes: { type: 'button' },
          on: { click: once(press) }
        },
        text
      );
    this._text = element('p', { attributes: { 'aria-live': 'polite' } });
    this._apply = button('Apply', apply, 'ddpviz-mod-accept');
    this._undo = button('Undo', undo);
    this._bar = element(
      'div',
      { class: 'ddpviz-apply' },
      this._text,
      element('div', { class: 'ddpviz-row' }, this._apply, this._undo)
    );
    this._bar.hidden = true;
    this._outcome = element('p', {
      class: 'ddpviz-outcome',
      attributes: { role: 'status' }
    });
    this.node = element('div', {}, this._bar, this._outcome);
  }

  /** Under that switch from now on; what was done before is no longer said. */
  standUnder(row: HTMLElement): void {
    setText(this._outcome, '');
    if (row.nextSibling !== this.node) {
      row.after(this.node);
    }
  }

  say(text: string): void {
    setText(this._text, text);
  }

  /** `refused`: it cannot be applied; `busy`: it is being applied. */
  draw(shown: boolean, refused: boolean, busy: boolean): void {
    show(this._bar, shown);
    this._bar.classList.toggle('ddpviz-mod-refused', refused);
    this._apply.disabled = refused || busy;
    this._undo.disabled = busy;
  }

  done(text: string): void {
    setText(this._outcome, text);
  }

  /** The button that was pressed is hidden: the keyboard goes on at the switch above it. */
  focusSwitch(): void {
    const row = this.node.previousElementSibling;
    row?.querySelector<HTMLElement>('button, input, select')?.focus();
  }
}
