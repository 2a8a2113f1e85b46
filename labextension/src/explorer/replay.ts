import type { BokehModel } from './bokeh';
import { element, keepKeys, once, setText, show } from './dom';

/** How long a replay takes, and how often it moves. */
const WHOLE_MS = 8000;
const TICK_MS = 50;
/** The slider's steps. */
const STEPS = 1000;

/**
 * Replays a figure that has a source "cursor": the figure veils what is later than the cursor's
 * `x`, which this moves between its `begin` and `right`.
 */
export class Replay {
  readonly node: HTMLElement;

  private readonly _play: HTMLButtonElement;
  private readonly _slider: HTMLInputElement;
  private readonly _said: HTMLElement;
  private _cursor: BokehModel | null = null;
  /** How much of it has been played, 0 to 1. */
  private _share = 1;
  private _timer: ReturnType<typeof setInterval> | undefined;

  /** `stay`: called before it is moved, so that the figure's step stays. */
  constructor(private readonly _stay: () => void) {
    this._play = element('button', {
      class: 'ddpviz-button',
      attributes: { type: 'button' },
      on: {
        click: once(() => {
          if (this._timer === undefined) {
            this._start();
          } else {
            this._stop();
          }
        })
      }
    });
    this._slider = keepKeys(
      element('input', {
        class: 'ddpviz-slider',
        attributes: {
          type: 'range',
          min: '0',
          max: String(STEPS),
          step: '1',
          value: String(STEPS),
          'aria-label': 'Time in the step'
        },
        on: {
          input: () => {
            const share = this._slider.valueAsNumber / STEPS;
            this._stop();
            this._stay();
            this._move(share);
          }
        }
      })
    );
    this._said = element('span', { class: 'ddpviz-quiet' });
    this.node = element(
      'div',
      {
        class: 'ddpviz-row ddpviz-replay',
        attributes: { role: 'group', 'aria-label': 'Replay' }
      },
      this._play,
      this._slider,
      this._said
    );
    this._draw();
  }

  dispose(): void {
    this._stop();
    this._cursor = null;
  }

  /** The source of the figure that is there now, null for a figure without one. */
  attach(cursor: BokehModel | null): void {
    this._cursor = cursor;
    this.drawn();
  }

  /** The figure has new data: it is shown as far as it was played. */
  drawn(): void {
    if (this._share < 1) {
      this._move(this._share);
    } else {
      this._draw();
    }
  }

  private _start(): void {
    this._stay();
    if (this._share >= 1) {
      this._move(0);
    }
    this._timer = setInterval(() => {
      this._move(this._share + TICK_MS / WHOLE_MS);
      if (this._share >= 1) {
        this._stop();
      }
    }, TICK_MS);
    this._draw();
  }

  private _stop(): void {
    clearInterval(this._timer);
    this._timer = undefined;
    this._draw();
  }

  private _move(share: number): void {
    this._share = Math.min(Math.max(share, 0), 1);
    const span = this._span();
    if (span !== null) {
      const [begin, end] = span;
      const x = Float64Array.of(begin + this._share * (end - begin));
      this._cursor?.setv({ data: { ...this._cursor.data, x } });
    }
    this._draw();
  }

  private _span(): [number, number] | null {
    const begin = first(this._cursor?.data?.['begin']);
    const end = first(this._cursor?.data?.['right']);
    return begin === null || end === null ? null : [begin, end];
  }

  private _draw(): void {
    const span = this._span();
    show(this.node, span !== null);
    const playing = this._timer !== undefined;
    setText(this._play, playing ? '❚❚ Pause' : '▶ Play');
    this._play.setAttribute('aria-pressed', String(playing));
    this._slider.value = String(Math.round(this._share * STEPS));
    if (span !== null) {
      const [begin, end] = span;
      const now = begin + this._share * (end - begin);
      const told = `${now.toFixed(1)} of ${end.toFixed(1)} ms`;
      setText(this._said, told);
      this._slider.setAttribute('aria-valuetext', told);
    }
  }
}

function first(column: unknown): number | null {
  const value: unknown =
    Array.isArray(column) || column instanceof Float64Array
      ? column[0]
      : undefined;
  return typeof value === 'number' ? value : null;
}
