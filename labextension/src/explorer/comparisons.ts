import type { SessionClient } from './client';
import { whyNotCompare } from './comparer';
import { element, isDisabled, keepKeys, once, setReason, show } from './dom';
import { Endings } from './emitter';
import { Fold } from './fold';
import type { Choice, Comparable } from './protocol';
import { messageOf } from './transport';

const ROUNDS = 3;
/** What is ticked at first. */
const FIRST: ReadonlySet<string> = new Set([
  'eager',
  'ddp_optimizer',
  'no_optimization'
]);
const ABOUT =
  'All begin with the same weights and batches, in turns; the workload is then loaded anew, ' +
  'as it is configured. Compiling can take a minute for each.';

/** Compile modes to be compared: a button that unfolds them, and the fold where they are ticked. */
export class Comparisons {
  readonly toggle: HTMLButtonElement;
  readonly node: HTMLElement;

  private readonly _fold: Fold;
  private readonly _modes: HTMLElement;
  private readonly _backend: HTMLSelectElement;
  private readonly _rounds: HTMLInputElement;
  private readonly _run: HTMLButtonElement;
  private readonly _settings: HTMLElement;
  private readonly _endings = new Endings();
  private _boxes: HTMLInputElement[] = [];
  private _reading = false;
  /** Why there is nothing to tick, "" for nothing. */
  private _missing = '';

  constructor(private readonly _client: SessionClient) {
    const { comparer } = _client;
    this._fold = new Fold(
      {
        name: 'comparisons',
        text: 'Compare',
        title: 'The same model in several compile modes, measured side by side',
        label: 'Comparison of compile modes'
      },
      open => {
        this._turned(open);
      }
    );
    this.toggle = this._fold.toggle;
    this.node = this._fold.node;
    this._modes = element('div', {
      class: 'ddpviz-comparison-modes',
      attributes: { role: 'group', 'aria-label': 'Modes to compare' }
    });
    this._backend = keepKeys(element('select', { class: 'ddpviz-input' }));
    this._rounds = keepKeys(
      element('input', {
        class: 'ddpviz-input',
        attributes: {
          type: 'number',
          min: '2',
          max: '20',
          step: '1',
          value: String(ROUNDS)
        },
        on: {
          input: () => {
            this._draw();
          }
        }
      })
    );
    this._run = element(
      'button',
      {
        class: 'ddpviz-button ddpviz-mod-accept',
        attributes: { type: 'button', 'aria-describedby': this._fold.said.id },
        on: {
          click: once(() => {
            if (!isDisabled(this._run)) {
              const rounds = this._rounds.valueAsNumber;
              void comparer.run(this._ticked(), this._backend.value, rounds);
            }
          })
        }
      },
      '▶ Compare them'
    );
    this._settings = element(
      'div',
      { class: 'ddpviz-row' },
      element('label', {}, 'backend ', this._backend),
      element('label', {}, 'rounds ', this._rounds),
      this._run
    );
    this.node.append(
      this._modes,
      this._settings,
      this._fold.said,
      this._fold.problem
    );
    this._endings.add(
      _client.changed.subscribe(() => {
        this._draw();
      }),
      comparer.changed.subscribe(() => {
        this._changed();
      })
    );
    this._draw();
  }

  dispose(): void {
    this._endings.end();
  }

  private _turned(open: boolean): void {
    this._missing = '';
    if (open) {
      this._boxes = []; // What can be compared depends on what is loaded by now.
    }
    this._draw();
  }

  private async _read(): Promise<void> {
    this._reading = true;
    try {
      this._fill(await this._client.comparer.offered());
    } catch (error) {
      this._missing = messageOf(error);
    }
    this._reading = false;
    this._draw();
  }

  private _fill({ modes, backends }: Comparable): void {
    this._boxes = modes.map(({ name, disabled }) => {
      const box = element('input', {
        attributes: { type: 'checkbox', value: name },
        on: {
          change: () => {
            this._draw();
          }
        }
      });
      box.disabled = disabled !== null;
      box.checked = disabled === null && FIRST.has(name);
      return box;
    });
    this._modes.replaceChildren(
      ...modes.map((mode, place) => line(mode, this._boxes[place] ?? null))
    );
    this._backend.replaceChildren(
      ...backends.map(({ name, disabled }) => {
        const text = disabled === null ? name : `${name}: ${disabled}`;
        const option = element('option', { attributes: { value: name } }, text);
        option.disabled = disabled !== null;
        return option;
      })
    );
    const first = backends.find(({ disabled }) => disabled === null);
    this._backend.value = first?.name ?? '';
  }

  private _ticked(): string[] {
    return this._boxes.filter(box => box.checked).map(box => box.value);
  }

  /** What was found is told elsewhere; what went wrong is told in the fold, which stays. */
  private _changed(): void {
    if (this._client.comparer.found !== null && !this._fold.folded) {
      this._fold.close();
    }
    this._draw();
  }

  private _draw(): void {
    const { comparer, state, connection } = this._client;
    const why = comparer.running
      ? 'it runs'
      : whyNotCompare(state, connection === 'connected');
    const none = this._boxes.length === 0;
    // A rank is asked, so it has to wait until the session is idle.
    const due = none && this._missing === '' && !this._reading;
    if (due && why === null && !this._fold.folded) {
      void this._read();
    }
    const lacks = none ? 'they are not read yet' : this._lacks();
    setReason(this._run, why ?? lacks);
    show(this._modes, !none);
    show(this._settings, !none);
    this._fold.say(this._words(why, none ? null : lacks));
    this._fold.fail(comparer.problem);
  }

  private _lacks(): string | null {
    const rounds = this._rounds.valueAsNumber;
    if (this._ticked().length < 2) {
      return 'tick two modes at least';
    }
    return Number.isInteger(rounds) && rounds >= 2 && rounds <= 20
      ? null
      : 'expected 2 to 20 rounds: without a second one no noise is known';
  }

  private _words(why: string | null, lacks: string | null): string {
    if (this._client.comparer.running) {
      return 'Runs: the state on top tells how far it is; Stop ends it.';
    }
    if (this._reading) {
      return 'Loading …';
    }
    if (why !== null) {
      return `Nothing can be compared now: ${why}.`;
    }
    if (this._missing !== '') {
      return this._missing;
    }
    return lacks === null ? ABOUT : `Not yet: ${lacks}.`;
  }
}

function line(mode: Choice, box: HTMLInputElement | null): HTMLElement {
  const why = mode.disabled ?? mode.remark;
  const about = element('span', { class: 'ddpviz-quiet' }, ` ${why}`);
  return element('label', {}, box, ` ${mode.name}`, why === '' ? null : about);
}
