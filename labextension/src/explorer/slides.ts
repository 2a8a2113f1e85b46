import type { SessionClient } from './client';
import { element, isDisabled, keepKeys, once, setReason } from './dom';
import { Endings } from './emitter';
import { Fold } from './fold';
import type { Deck, SlideOffer } from './protocol';
import { messageOf } from './transport';

type Place = 'browser' | 'kernel';

/** That may be chosen by number. */
const MOST_STEPS = 1000;

/** A slide that may be chosen, and the title that it gets. */
interface Line {
  readonly name: string;
  readonly box: HTMLInputElement;
  readonly title: HTMLInputElement;
}

const ABOUT =
  'One HTML file that needs no network and no kernel: its figures can be zoomed, hovered and ' +
  'played. S in it opens the speaker’s view.';

/** A deck of slides: a button that unfolds the choice of slides, and the fold itself. */
export class Slides {
  readonly toggle: HTMLButtonElement;
  readonly node: HTMLElement;

  private readonly _fold: Fold;
  private readonly _choice: HTMLElement;
  private readonly _title: HTMLInputElement;
  private readonly _step: HTMLSelectElement;
  private readonly _steps: HTMLInputElement;
  private readonly _theme: HTMLSelectElement;
  private readonly _buttons: readonly HTMLButtonElement[];
  private readonly _endings = new Endings();
  private _lines: readonly Line[] = [];
  private _making = false;
  private _told = '';

  constructor(private readonly _client: SessionClient) {
    this._fold = new Fold(
      {
        name: 'slides',
        text: 'Slides',
        title: 'What was recorded, as a deck of slides that works offline',
        label: 'Slides'
      },
      open => {
        this._turned(open);
      }
    );
    this.toggle = this._fold.toggle;
    this.node = this._fold.node;
    this._choice = element('div', {
      class: 'ddpviz-slides-choice',
      attributes: { role: 'group', 'aria-label': 'Slides' }
    });
    this._title = field('as the job is called');
    this._step = list([
      ['median', 'the median one'],
      ['shown', 'the one shown here']
    ]);
    this._steps = field('or these: 4, 7-9');
    this._steps.setAttribute('aria-label', 'Steps of the deck by number');
    this._theme = list([
      ['auto', 'as the reader’s browser'],
      ['light', 'light'],
      ['dark', 'dark']
    ]);
    const button = (text: string, title: string, place: Place) =>
      element(
        'button',
        {
          class: `ddpviz-button${place === 'browser' ? ' ddpviz-mod-accept' : ''}`,
          title,
          attributes: {
            type: 'button',
            'data-place': place,
            'data-title': title,
            'aria-describedby': this._fold.said.id
          },
          on: {
            click: once(() => {
              void this._make(place);
            })
          }
        },
        text
      );
    this._buttons = [
      button('Download', 'To where this browser puts downloads', 'browser'),
      button(
        'Save beside the notebook',
        'To the directory that the kernel works in',
        'kernel'
      )
    ];
    this.node.append(
      this._choice,
      element(
        'div',
        { class: 'ddpviz-row' },
        element('label', {}, 'title ', this._title),
        element('label', {}, 'step ', this._step),
        this._steps,
        element('label', {}, 'colours ', this._theme),
        ...this._buttons
      ),
      this._fold.said,
      this._fold.problem
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

  private _turned(open: boolean): void {
    this._told = '';
    if (open) {
      void this._read();
    }
    this._draw();
  }

  /** What there is to choose may have become more since. */
  private async _read(): Promise<void> {
    try {
      this._fill(await this._client.slides());
      this._fold.fail('');
    } catch (error) {
      this._fold.fail(messageOf(error));
    }
    this._draw();
  }

  private _fill(offers: readonly SlideOffer[]): void {
    const before = new Map(this._lines.map(line => [line.name, line]));
    this._lines = offers.map(({ name, title, disabled }) => {
      const known = before.get(name);
      const box = element('input', {
        attributes: { type: 'checkbox', value: name },
        on: {
          change: () => {
            this._draw();
          }
        }
      });
      const had = known === undefined || known.box.disabled;
      box.disabled = disabled !== null;
      box.checked = disabled === null && (had || known.box.checked);
      const named = known?.title ?? field(title);
      named.setAttribute('aria-label', `Title of ${title}`);
      named.disabled = disabled !== null;
      return { name, box, title: named };
    });
    this._choice.replaceChildren(
      ...this._lines.map(({ box, title }, place) => {
        const offer = offers[place];
        const why = offer?.disabled ?? '';
        return element(
          'div',
          { class: 'ddpviz-slides-line', title: why },
          element('label', {}, box, ` ${offer?.title ?? ''}`),
          why === '' ? title : element('span', { class: 'ddpviz-quiet' }, why)
        );
      })
    );
  }

  private async _make(place: Place): Promise<void> {
    if (this._buttons.some(isDisabled)) {
      return;
    }
    this._making = true;
    this._told = '';
    this._fold.fail('');
    this._draw();
    try {
      const chosen = this._lines.filter(({ box }) => box.checked);
      const titles = chosen
        .map(({ name, title }) => [name, title.value.trim()] as const)
        .filter(([, title]) => title !== '');
      const { deck, bytes } = await this._client.deck({
        place,
        slides: chosen.map(({ name }) => name),
        titles: Object.fromEntries(titles),
        title: this._title.value.trim(),
        steps: this._chosenSteps(),
        theme: this._theme.value
      });
      if (bytes !== null) {
        download(deck.name, bytes);
      }
      this._told = told(deck);
    } catch (error) {
      this._fold.fail(messageOf(error));
    } finally {
      this._making = false;
      this._draw();
    }
  }

  /** Null for the median one, which the kernel knows. */
  private _chosenSteps(): readonly number[] | null {
    if (this._steps.value.trim() !== '') {
      return stepsOf(this._steps.value);
    }
    const shown = this._client.shownStep;
    return this._step.value === 'shown' && shown !== null ? [shown] : null;
  }

  private _draw(): void {
    const why = this._whyNot();
    for (const button of this._buttons) {
      setReason(button, why);
    }
    const words = this._making
      ? 'Making the deck …'
      : this._told !== ''
        ? this._told
        : why === null
          ? ABOUT
          : `No deck can be made now: ${why}.`;
    this._fold.say(words);
  }

  private _whyNot(): string | null {
    const { state, connection } = this._client;
    if (connection !== 'connected' || state === null) {
      return 'the kernel does not answer';
    }
    if (this._making) {
      return 'one is being made';
    }
    if (this._lines.length === 0) {
      return 'what can be chosen is not known yet';
    }
    return this._lines.some(({ box }) => box.checked)
      ? null
      : 'no slide is ticked';
  }
}

/** "4, 7-9" as numbers; throws where it is something else, or more than a deck can show. */
export function stepsOf(text: string): readonly number[] {
  const found: number[] = [];
  const parts = text.replace(/\s*[-–]\s*/g, '-').split(/[,;\s]+/);
  for (const part of parts.filter(one => one !== '')) {
    const match = /^(\d{1,9})(?:-(\d{1,9}))?$/.exec(part);
    const first = Number(match?.[1] ?? NaN);
    const last = match?.[2] === undefined ? first : Number(match[2]);
    if (!(first <= last) || found.length + last - first >= MOST_STEPS) {
      throw new Error(
        `found the steps “${text.trim()}”, expected numbers and spans like 4, 7-9, ` +
          `of at most ${String(MOST_STEPS)} steps`
      );
    }
    for (let step = first; step <= last; step += 1) {
      found.push(step);
    }
  }
  return found;
}

/** Where it went and how large it is. */
export function told({ name, size, path }: Deck): string {
  return path === undefined
    ? `Downloaded as ${name}, ${size}.`
    : `Saved as ${path}, ${size}.`;
}

/** Hand a file to the browser, as if it were a link's. */
function download(name: string, bytes: DataView): void {
  const copy = new Uint8Array(bytes.byteLength);
  copy.set(new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength));
  const url = URL.createObjectURL(new Blob([copy], { type: 'text/html' }));
  const link = element('a', { attributes: { href: url, download: name } });
  link.click();
  setTimeout(() => {
    URL.revokeObjectURL(url);
  }, 60_000);
}

function field(placeholder: string): HTMLInputElement {
  return keepKeys(
    element('input', {
      class: 'ddpviz-input',
      attributes: { type: 'text', placeholder, maxlength: '300' }
    })
  );
}

function list(
  options: readonly (readonly [string, string])[]
): HTMLSelectElement {
  return keepKeys(
    element(
      'select',
      { class: 'ddpviz-input' },
      ...options.map(([value, text]) =>
        element('option', { attributes: { value } }, text)
      )
    )
  );
}
