import type { SessionClient } from './client';
import { element, isDisabled, keepKeys, once, setReason, setText } from './dom';
import { Endings } from './emitter';
import { plural } from './format';
import type { StepMove } from './keys';
import { moveStep, withKey } from './keys';
import { stepLimits } from './protocol';

/** Which step is shown: follow the newest, or stay at one and go from there. */
export class StepBar {
  readonly node: HTMLElement;

  private readonly _follow: HTMLButtonElement;
  private readonly _previous: HTMLButtonElement;
  private readonly _next: HTMLButtonElement;
  private readonly _newest: HTMLButtonElement;
  private readonly _field: HTMLInputElement;
  private readonly _said: HTMLElement;
  private readonly _endings = new Endings();

  constructor(private readonly _client: SessionClient) {
    this._follow = this._mover(
      '',
      'Follow the newest step, or stay at this one',
      'toggle'
    );
    this._follow.classList.add('ddpviz-follow');
    this._previous = this._mover('‹', 'Previous step', 'previous');
    this._next = this._mover('›', 'Next step', 'next');
    this._newest = this._button('»', 'Newest step, and stay there', () => {
      const limits = this._limits();
      if (limits !== null) {
        _client.lookAt(limits[1]);
      }
    });
    this._field = keepKeys(
      element('input', {
        class: 'ddpviz-input ddpviz-number',
        title: `${withKey('Step: the first', 'first')}, ${withKey('follow the newest', 'newest')}`,
        attributes: { type: 'number', step: '1', 'aria-label': 'Step' },
        on: {
          change: () => {
            if (this._field.value !== '') {
              _client.lookAt(this._field.valueAsNumber);
              this._draw();
            }
          }
        }
      })
    );
    this._said = element('span', {
      class: 'ddpviz-quiet',
      attributes: { 'aria-live': 'off' }
    });
    this.node = element(
      'div',
      {
        class: 'ddpviz-row ddpviz-steps',
        attributes: { role: 'group', 'aria-label': 'Step that is shown' }
      },
      this._follow,
      this._previous,
      this._field,
      this._next,
      this._newest,
      this._said
    );
    this._endings.add(
      _client.changed.subscribe(() => {
        this._draw();
      })
    );
    this._draw();
  }

  dispose(): void {
    this._endings.end();
  }

  private _limits(): [number, number] | null {
    return this._client.state === null ? null : stepLimits(this._client.state);
  }

  private _mover(
    text: string,
    label: string,
    move: StepMove
  ): HTMLButtonElement {
    const go = () => {
      moveStep(this._client, move);
    };
    // Each click on an arrow is a step of its own.
    const press = move === 'toggle' ? once(go) : go;
    return this._button(text, label, press, withKey(label, move));
  }

  private _button(
    text: string,
    label: string,
    press: () => void,
    title = label
  ): HTMLButtonElement {
    const button = element(
      'button',
      {
        class: 'ddpviz-button',
        title,
        attributes: {
          type: 'button',
          'aria-label': label,
          'data-title': title
        },
        on: {
          click: () => {
            if (!isDisabled(button)) {
              press();
            }
          }
        }
      },
      text
    );
    return button;
  }

  private _draw(): void {
    const limits = this._limits();
    const shown = this._client.shownStep;
    const follows = this._client.step === 'newest';
    setText(this._follow, follows ? '❚❚ Pause' : '▶ Follow');
    this._follow.setAttribute('aria-pressed', String(follows));
    const none = limits === null ? 'no step is recorded yet' : null;
    setReason(this._follow, none);
    setReason(this._newest, none);
    const [first, last] = limits ?? [0, 0];
    const at = shown ?? 0;
    setReason(
      this._previous,
      none ?? (at <= first ? 'this is the first step' : null)
    );
    setReason(
      this._next,
      none ?? (at >= last ? 'this is the newest step' : null)
    );
    this._field.disabled = limits === null;
    this._field.min = String(first);
    this._field.max = String(last);
    if (document.activeElement !== this._field) {
      this._field.value = shown === null ? '' : String(shown);
    }
    const behind = last - at;
    setText(
      this._said,
      none !== null
        ? none
        : follows
          ? 'newest step'
          : behind > 0
            ? `${plural(behind, 'step')} behind the newest`
            : 'stays at this step'
    );
  }
}
