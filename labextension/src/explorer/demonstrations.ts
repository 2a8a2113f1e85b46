import type { SessionClient } from './client';
import { whyNotDemonstrate } from './demonstrator';
import { element, isDisabled, once, setReason, show } from './dom';
import { Endings } from './emitter';
import { Fold } from './fold';
import type { Demonstration, DemonstrationFamily } from './protocol';
import { viewLabel } from './protocol';
import { messageOf } from './transport';

/** The demonstrations: a button that unfolds them, and the fold in which one is chosen and run. */
export class Demonstrations {
  readonly toggle: HTMLButtonElement;
  readonly node: HTMLElement;

  private readonly _fold: Fold;
  private readonly _choice: HTMLSelectElement;
  private readonly _about: HTMLElement;
  private readonly _run: HTMLButtonElement;
  private readonly _endings = new Endings();
  private _known = new Map<string, Demonstration>();
  private _reading = false;
  /** Why there are none to choose from, "" for nothing. */
  private _missing = '';

  constructor(private readonly _client: SessionClient) {
    const { demonstrator } = _client;
    this._fold = new Fold(
      {
        name: 'demonstrations',
        text: 'Demonstrations',
        title: 'Small set-ups that make one fact about DDP visible',
        label: 'Demonstrations'
      },
      open => {
        this._turned(open);
      }
    );
    this.toggle = this._fold.toggle;
    this.node = this._fold.node;
    this._choice = element('select', {
      class: 'ddpviz-input',
      attributes: { 'aria-label': 'Demonstration' },
      on: {
        change: () => {
          this._tell();
        }
      }
    });
    this._about = element('div', {
      class: 'ddpviz-demonstration-about',
      attributes: { 'aria-live': 'polite' }
    });
    this._run = element(
      'button',
      {
        class: 'ddpviz-button ddpviz-mod-accept',
        attributes: { type: 'button', 'aria-describedby': this._fold.said.id },
        on: {
          click: once(() => {
            if (!isDisabled(this._run)) {
              void demonstrator.run(this._choice.value);
            }
          })
        }
      },
      '▶ Run it'
    );
    this.node.append(
      element('div', { class: 'ddpviz-row' }, this._choice, this._run),
      this._fold.said,
      this._about,
      this._fold.problem
    );
    this._endings.add(
      _client.changed.subscribe(() => {
        this._draw();
      }),
      demonstrator.changed.subscribe(() => {
        this._changed();
      })
    );
    this._draw();
  }

  dispose(): void {
    this._endings.end();
  }

  private _turned(open: boolean): void {
    if (open && this._known.size === 0) {
      void this._read();
    }
    this._draw();
  }

  private async _read(): Promise<void> {
    if (this._reading) {
      return;
    }
    this._reading = true;
    this._draw();
    try {
      this._fill(await this._client.demonstrator.families());
      this._missing = '';
    } catch (error) {
      this._missing = messageOf(error);
    }
    this._reading = false;
    this._draw();
  }

  private _fill(families: readonly DemonstrationFamily[]): void {
    this._known = new Map(
      families.flatMap(({ demonstrations }) =>
        demonstrations.map(one => [one.name, one])
      )
    );
    this._choice.replaceChildren(
      ...families.map(({ family, demonstrations }) =>
        element(
          'optgroup',
          { attributes: { label: family } },
          ...demonstrations.map(one =>
            element('option', { attributes: { value: one.name } }, one.title)
          )
        )
      )
    );
    this._tell();
  }

  /** What the chosen one shows. */
  private _tell(): void {
    const one = this._known.get(this._choice.value);
    this._choice.title = one?.title ?? '';
    this._about.replaceChildren(
      ...(one === undefined
        ? []
        : [
            element('strong', {}, one.title),
            element(
              'p',
              {},
              'The article says, and here it is put to the test:'
            ),
            element(
              'ul',
              {},
              ...one.claims.map(({ claim, verdict }) =>
                element(
                  'li',
                  {},
                  claim,
                  element('span', { class: 'ddpviz-verdict' }, ` (${verdict})`)
                )
              )
            ),
            element(
              'p',
              { class: 'ddpviz-quiet' },
              `Shown by ${viewLabel(one.view)}. It takes the place of the workload that is loaded, and leaves the session idle.`
            )
          ])
    );
  }

  /** What was found is told elsewhere; what went wrong is told in the fold, which stays. */
  private _changed(): void {
    if (this._client.demonstrator.found !== null && !this._fold.folded) {
      this._fold.close();
    }
    this._draw();
  }

  private _draw(): void {
    const { state, connection, demonstrator } = this._client;
    const why = demonstrator.running
      ? 'it runs'
      : whyNotDemonstrate(state, connection === 'connected');
    const none = this._known.size === 0;
    setReason(this._run, why ?? (none ? 'they are not read yet' : null));
    this._choice.disabled = none || demonstrator.running;
    show(this._choice, !none);
    show(this._run, !none);
    show(this._about, !none);
    const said = demonstrator.running
      ? 'Runs: the state on top tells how far it is; Stop ends it.'
      : this._reading
        ? 'Loading …'
        : why === null
          ? this._missing
          : `No demonstration can run now: ${why}.`;
    this._fold.say(said);
    this._fold.fail(demonstrator.problem);
  }
}
