import { element, keepKeys, newId, setText, show } from './dom';
import type { Reading } from './protocol';
import { messageOf } from './transport';

/** Texts of a figure that are read in full: one at a time, asked for when it is chosen. */
export class Readings {
  readonly node: HTMLElement;

  private readonly _select: HTMLSelectElement;
  private readonly _text: HTMLElement;
  private _shown = '';
  private _asked = 0;

  constructor(private readonly _read: (key: string) => Promise<string>) {
    const id = newId('code');
    this._select = keepKeys(
      element('select', {
        class: 'ddpviz-input',
        attributes: { id },
        on: {
          change: () => {
            void this._show();
          }
        }
      })
    );
    this._text = element('pre', {
      class: 'ddpviz-code',
      attributes: { tabindex: '0', 'aria-label': 'Code' }
    });
    this.node = element(
      'div',
      { class: 'ddpviz-readings' },
      element(
        'label',
        { attributes: { for: id } },
        'code of (or click a graph) '
      ),
      this._select,
      this._text
    );
    show(this.node, false);
    show(this._text, false);
  }

  /** What there is to read; what is chosen stays chosen while it is among it. */
  offer(readings: readonly Reading[]): void {
    const shown = JSON.stringify(readings);
    if (shown === this._shown) {
      return;
    }
    this._shown = shown;
    const chosen = this._select.value;
    this._select.replaceChildren(
      ...[['', '…'] as const, ...readings].map(([key, label]) =>
        element('option', { attributes: { value: key } }, label)
      )
    );
    this._select.value = readings.some(([key]) => key === chosen) ? chosen : '';
    show(this.node, readings.length > 0);
    if (this._select.value !== chosen) {
      void this._show();
    }
  }

  /** Show this one; nothing for what is not offered. */
  open(key: string): void {
    if ([...this._select.options].some(option => option.value === key)) {
      this._select.value = key;
      void this._show();
    }
  }

  private async _show(): Promise<void> {
    const key = this._select.value;
    this._asked += 1;
    const asked = this._asked;
    let text = '';
    try {
      text = key === '' ? '' : await this._read(key);
    } catch (error) {
      text = messageOf(error);
    }
    // Another may have been chosen meanwhile.
    if (asked === this._asked) {
      setText(this._text, text);
      show(this._text, text !== '');
    }
  }
}
