import { element, newId, once, setText, show } from './dom';

interface FoldOptions {
  /** Of its classes: "ddpviz-name", and "ddpviz-name-toggle" of the button. */
  name: string;
  /** What stands on the button, and what it is for. */
  text: string;
  title: string;
  /** What the part is called. */
  label: string;
}

/** A part of the page that a button unfolds, with a line of what goes on and one of what failed. */
export class Fold {
  readonly toggle: HTMLButtonElement;
  readonly node: HTMLElement;
  readonly said: HTMLElement;
  readonly problem: HTMLElement;

  /** `turned`: it was folded or unfolded. */
  constructor(
    { name, text, title, label }: FoldOptions,
    private readonly _turned: (open: boolean) => void
  ) {
    const id = newId(name);
    this.toggle = element(
      'button',
      {
        class: `ddpviz-button ddpviz-${name}-toggle`,
        title,
        attributes: {
          type: 'button',
          'aria-expanded': 'false',
          'aria-controls': id
        },
        on: {
          click: once(() => {
            this.unfold(this.folded);
          })
        }
      },
      text
    );
    this.said = element('p', {
      class: 'ddpviz-quiet',
      attributes: { id: newId(name), 'aria-live': 'polite' }
    });
    this.problem = element('p', {
      class: 'ddpviz-problem',
      attributes: { role: 'alert' }
    });
    this.node = element('div', {
      class: `ddpviz-${name}`,
      attributes: { id, role: 'region', 'aria-label': label }
    });
    this.node.hidden = true;
  }

  get folded(): boolean {
    return this.node.hidden;
  }

  unfold(open: boolean): void {
    show(this.node, open);
    this.toggle.setAttribute('aria-expanded', String(open));
    this._turned(open);
  }

  /** Fold it; who had the focus in it finds it on the button. */
  close(): void {
    const focused = this.node.contains(document.activeElement);
    this.unfold(false);
    if (focused) {
      this.toggle.focus({ preventScroll: true });
    }
  }

  say(words: string): void {
    setText(this.said, words);
    show(this.said, words !== '');
  }

  fail(words: string): void {
    setText(this.problem, words);
    show(this.problem, words !== '');
  }
}
