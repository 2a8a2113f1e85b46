import { element, newId, once, show } from './dom';

/** Asks before something that cannot be undone, where it was asked for. */
export class Confirm {
  readonly node: HTMLElement;

  private readonly _keep: HTMLButtonElement;
  private _back: HTMLElement | null = null;

  private readonly _escape = (event: Event) => {
    if ((event as KeyboardEvent).key === 'Escape') {
      event.stopPropagation();
      this.close();
    }
  };

  /** `question`: with what is lost and what is kept; `yes`, `no`: what the buttons say. */
  constructor(question: string, yes: string, no: string, act: () => void) {
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
    const id = newId('question');
    this._keep = button(no, () => {
      this.close();
    });
    this.node = element(
      'div',
      {
        class: 'ddpviz-confirm',
        attributes: { role: 'alertdialog', 'aria-labelledby': id },
        on: { keydown: this._escape }
      },
      element('p', { attributes: { id } }, question),
      element(
        'div',
        { class: 'ddpviz-row' },
        button(
          yes,
          () => {
            this.close();
            act();
          },
          'ddpviz-mod-warn'
        ),
        this._keep
      )
    );
    this.node.hidden = true;
  }

  /** `back`: what gets the focus when it is answered. */
  ask(back: HTMLElement): void {
    this._back = back;
    // The second click of a double click takes the focus back there.
    back.addEventListener('keydown', this._escape);
    show(this.node, true);
    this._keep.focus();
  }

  close(): void {
    if (!this.node.hidden) {
      const focused = this.node.contains(document.activeElement);
      show(this.node, false);
      this._back?.removeEventListener('keydown', this._escape);
      if (focused) {
        this._back?.focus();
      }
    }
  }
}
