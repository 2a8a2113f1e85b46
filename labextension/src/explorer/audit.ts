import type { SessionClient } from './client';
import { element, once, setText, show } from './dom';
import { Emitter } from './emitter';
import { plural } from './format';
import { viewLabel } from './protocol';
import type { AuditFinding } from './protocol';

/** A severity as a sign, beside its word: never by colour alone. */
const SIGNS: Readonly<Record<AuditFinding['severity'], string>> = {
  'wrong numbers': '✕',
  failure: '✕',
  slow: '◔',
  note: 'i'
};

/** So many names the audit's sentences tell at most. */
const IN_SENTENCE = 4;

function capital(text: string): string {
  return `${text.slice(0, 1).toUpperCase()}${text.slice(1)}`;
}

/** What is counted and not listed. */
function rest(more: number, listed: number): HTMLElement[] {
  if (more <= 0) {
    return [];
  }
  const text =
    listed === 0
      ? 'A rank failed, as the line above says; the audit has not come to it yet.'
      : `And ${String(more)} more: recording.audit() has all of them.`;
  return [element('li', { class: 'ddpviz-finding ddpviz-quiet' }, text)];
}

/** A badge that says how many findings there are, and below it the list of what the audit found. */
export class Findings {
  readonly badge: HTMLButtonElement;
  readonly list: HTMLElement;
  /** The view that somebody wants to see one in. */
  readonly wanted = new Emitter<string>();

  private readonly _rows: HTMLElement;
  private readonly _uncovered = element('ul', { class: 'ddpviz-unchecked' });
  /** What the findings do not cover: steps that went by, kinds that cannot be told. */
  private readonly _unchecked = element(
    'details',
    { class: 'ddpviz-quiet' },
    element('summary', {}, 'Not checked'),
    this._uncovered
  );
  private _open = false;
  private _listed = '';
  private _saidUnchecked = '';
  private _any = false;

  constructor(private readonly _client: SessionClient) {
    this.badge = element('button', {
      class: 'ddpviz-badge',
      attributes: { type: 'button', 'aria-expanded': 'false' },
      on: {
        click: once(() => {
          this._open = !this._open;
          this._shown();
        })
      }
    });
    this._rows = element('ol', { class: 'ddpviz-findings' });
    this.list = element(
      'div',
      { attributes: { role: 'region', 'aria-label': 'Findings' } },
      this._rows,
      this._unchecked
    );
    show(this.badge, false);
    show(this._unchecked, false);
    show(this.list, false);
  }

  /** `audited`: whether the audit has looked, so that none means that there are none. */
  draw(
    count: number,
    found: readonly AuditFinding[],
    audited = false,
    unchecked: readonly string[] = []
  ): void {
    const now = JSON.stringify([count, found]);
    if (now !== this._listed) {
      this._listed = now;
      this._rows.replaceChildren(
        ...found.map(one => this._row(one)),
        ...rest(count - found.length, found.length)
      );
    }
    const open = unchecked.join('\n');
    if (open !== this._saidUnchecked) {
      this._saidUnchecked = open;
      this._uncovered.replaceChildren(
        ...unchecked.map(said => element('li', {}, said))
      );
      show(this._unchecked, unchecked.length > 0);
    }
    setText(
      this.badge,
      count > 0 ? `⚑ ${plural(count, 'finding')}` : '✓ no findings'
    );
    const none = count > 0 ? '' : 'none';
    this.badge.dataset['severity'] = found[0]?.severity ?? none;
    this.badge.title =
      found.length > 0
        ? 'What the audit found, worst first'
        : 'The audit looks at the steps as they come; what it does not check is listed here';
    this._any = count > 0 || unchecked.length > 0;
    show(this.badge, count > 0 || audited);
    this._shown();
  }

  private _shown(): void {
    const open = this._open && this._any;
    this.badge.setAttribute('aria-expanded', String(open));
    show(this.list, open);
  }

  private _row(one: AuditFinding): HTMLElement {
    return element(
      'li',
      { class: 'ddpviz-finding' },
      element(
        'p',
        {},
        element(
          'span',
          {
            class: 'ddpviz-severity',
            attributes: { 'data-severity': one.severity }
          },
          `${SIGNS[one.severity]} ${one.severity}`
        ),
        ` ${one.what} `,
        this._where(one)
      ),
      element(
        'p',
        { class: 'ddpviz-quiet' },
        `${capital(one.evidence)}. Usual cause: ${one.cause}.`
      ),
      this._all(one),
      element('p', {}, `To mend it: ${one.remedy} (${one.sure}).`)
    );
  }

  /** The names that its sentence only counts. */
  private _all(one: AuditFinding): HTMLElement | null {
    const names = one.names ?? [];
    const unsent = one.more_names ?? 0;
    if (names.length <= IN_SENTENCE) {
      return null;
    }
    const more = unsent > 0 ? ` and ${String(unsent)} more` : '';
    return element(
      'details',
      { class: 'ddpviz-quiet' },
      element('summary', {}, `All ${plural(names.length + unsent, 'name')}`),
      `${names.join(', ')}${more}`
    );
  }

  /** A button to the step and the view that show it. */
  private _where(one: AuditFinding): HTMLElement | null {
    if (one.view === '') {
      return null;
    }
    const step = one.step !== null && one.step >= 0 ? one.step : null;
    const label = viewLabel(one.view);
    return element(
      'button',
      {
        class: 'ddpviz-link',
        title:
          step === null
            ? `The view ${label} shows it`
            : `Go to that step: the view ${label} shows it`,
        attributes: { type: 'button' },
        on: {
          click: () => {
            if (step !== null) {
              this._client.lookAt(step);
            }
            this.wanted.emit(one.view);
          }
        }
      },
      step === null ? label : `step ${String(step)}, ${label}`
    );
  }
}
