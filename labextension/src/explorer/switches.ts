import { ChangeBar } from './change';
import type { SessionClient } from './client';
import { controlFor, valueText } from './controls';
import type { Control } from './controls';
import { element, newId, setText, show } from './dom';
import { Endings } from './emitter';
import type { Json, Prediction, Switch } from './protocol';
import { messageOf } from './transport';

interface Row {
  one: Switch;
  readonly node: HTMLElement;
  readonly control: Control;
  readonly needs: HTMLElement;
  readonly reason: HTMLElement;
  readonly changed: HTMLElement;
}

/**
 * The session's switches in a column, the ones that matter most first and the rest folded.
 *
 * A change is a draft until it is applied: what it will need, or why it is refused, is shown
 * first; what it did is said afterwards.
 */
export class SwitchColumn {
  readonly node: HTMLElement;

  private readonly _first: HTMLElement;
  private readonly _more: HTMLElement;
  private readonly _fold: HTMLDetailsElement;
  private readonly _note: HTMLElement;
  private readonly _change: ChangeBar;
  private readonly _rows = new Map<string, Row>();
  private readonly _drafts = new Map<string, Json>();
  private readonly _endings = new Endings();
  /** What is to be said of all of them, "" for nothing. */
  private _said = 'Loading …';
  private _asked = 0;
  private _reading = false;
  private _readAgain = false;
  private _applying = false;
  private _refused = false;

  constructor(private readonly _client: SessionClient) {
    this._first = element('div', { class: 'ddpviz-switches-first' });
    this._more = element('div');
    this._fold = element(
      'details',
      { class: 'ddpviz-fold' },
      element('summary', {}, 'More switches'),
      this._more
    );
    this._fold.hidden = true;
    this._note = element('p', { class: 'ddpviz-reason' });
    this._change = new ChangeBar(
      () => {
        void this._applyDrafts();
      },
      () => {
        this._forget();
      }
    );
    this.node = element(
      'div',
      {
        class: 'ddpviz-switches',
        attributes: { role: 'region', 'aria-label': 'Switches' }
      },
      this._change.node,
      this._note,
      this._first,
      this._fold
    );
    this._endings.add(
      _client.switchesChanged.subscribe(() => {
        void this._read();
      }),
      _client.changed.subscribe(() => {
        this._enable();
      })
    );
    this._enable();
    void this._read();
  }

  dispose(): void {
    this._endings.end();
  }

  private async _read(): Promise<void> {
    if (this._client.connection !== 'connected') {
      return;
    }
    if (this._reading) {
      this._readAgain = true;
      return;
    }
    this._reading = true;
    try {
      this._show(await this._client.switches());
    } catch (error) {
      this._said = messageOf(error);
      this._enable();
    } finally {
      this._reading = false;
    }
    if (this._takeReadAgain()) {
      await this._read();
    }
  }

  private _takeReadAgain(): boolean {
    const again = this._readAgain;
    this._readAgain = false;
    return again;
  }

  private _show(switches: readonly Switch[]): void {
    const names = new Set(switches.map(one => one.name));
    for (const [name, row] of this._rows) {
      if (!names.has(name)) {
        row.node.remove();
        this._rows.delete(name);
        this._drafts.delete(name);
      }
    }
    const place: Record<string, Element | null> = {
      first: this._first.firstElementChild,
      more: this._more.firstElementChild
    };
    // A reason that all have is said once.
    const [reason, ...others] = new Set(switches.map(one => one.disabled));
    const shared = others.length === 0 ? (reason ?? null) : null;
    for (const one of switches) {
      const known = this._rows.get(one.name);
      const stays = known !== undefined && sameShape(known.one, one);
      if (known !== undefined && !stays) {
        const { group } = known.one;
        if (place[group] === known.node) {
          place[group] = known.node.nextElementSibling;
        }
        known.node.remove();
      }
      const row = stays ? known : this._make(one);
      row.one = one;
      place[one.group] = this._place(row, place[one.group] ?? null);
      if (!this._drafts.has(one.name)) {
        row.control.set(one.value);
      }
      setText(row.needs, one.needs);
      row.node.title = one.needs === '' ? '' : `A change ${one.needs}`;
      setText(row.reason, one.disabled ?? '');
      show(row.reason, one.disabled !== null && shared === null);
    }
    show(this._fold, this._more.childElementCount > 0);
    this._said =
      switches.length === 0
        ? 'No switches yet: load a workload, session.load("convnet").'
        : shared === null
          ? ''
          : `Switches are off: ${shared}.`;
    this._enable();
    this._drawDrafts();
  }

  /** Put the row before `next`, unless it is there: what is moved loses its focus. */
  private _place(row: Row, next: Element | null): Element | null {
    const after = next === this._change.node ? next.nextElementSibling : next;
    if (row.node === after) {
      return after.nextElementSibling;
    }
    const part = row.one.group === 'first' ? this._first : this._more;
    part.insertBefore(row.node, after);
    return after;
  }

  private _make(one: Switch): Row {
    const label = newId('label');
    const control = controlFor(one, label, value => {
      this._draft(one.name, value);
    });
    const needs = element('p', { class: 'ddpviz-needs' });
    const why = newId('reason');
    const reason = element('p', {
      class: 'ddpviz-reason',
      attributes: { id: why }
    });
    const changed = element('span', { class: 'ddpviz-was' });
    const explanation = element(
      'p',
      { class: 'ddpviz-quiet' },
      one.explanation
    );
    const described = newId('description');
    const more = element(
      'div',
      { class: 'ddpviz-explanation', attributes: { id: described } },
      explanation,
      needs
    );
    const node = element(
      'div',
      { class: 'ddpviz-switch', attributes: { 'data-switch': one.name } },
      element(
        'div',
        { class: 'ddpviz-switch-head' },
        element(
          'span',
          { class: 'ddpviz-label', attributes: { id: label } },
          one.label
        ),
        changed,
        control.node
      ),
      reason,
      more
    );
    for (const field of node.querySelectorAll('button, input, select')) {
      field.setAttribute('aria-describedby', `${described} ${why}`);
    }
    const row: Row = { one, node, control, needs, reason, changed };
    this._rows.set(one.name, row);
    return row;
  }

  private _enable(): void {
    const gone = this._client.connection !== 'connected';
    for (const row of this._rows.values()) {
      row.control.enable(!gone && row.one.disabled === null && !this._applying);
    }
    const said = gone
      ? 'The kernel is not connected: switches work again when it is.'
      : this._said;
    setText(this._note, said);
    show(this._note, said !== '');
  }

  // --- a change, from draft to outcome -----------------------------------------------------------

  private _draft(name: string, value: Json): void {
    const row = this._rows.get(name);
    if (row === undefined) {
      return;
    }
    // A field tells of the same value again as it loses the focus: to a click on Apply, from under
    // which what is said meanwhile would move the button.
    const before = this._drafts.get(name) ?? row.one.value;
    if (JSON.stringify(value) === JSON.stringify(before)) {
      return;
    }
    this._change.standUnder(row.node);
    if (JSON.stringify(value) === JSON.stringify(row.one.value)) {
      this._drafts.delete(name);
    } else {
      this._drafts.set(name, value);
    }
    void this._predict();
  }

  private async _predict(): Promise<void> {
    this._asked += 1;
    const asked = this._asked;
    this._refused = false;
    if (this._drafts.size === 0) {
      this._drawDrafts();
      return;
    }
    this._change.say('…');
    this._drawDrafts();
    let found: Prediction;
    try {
      found = await this._client.predict(Object.fromEntries(this._drafts));
    } catch (error) {
      found = { needs: '', refused: messageOf(error) };
    }
    if (asked === this._asked) {
      this._refused = found.refused !== null;
      this._change.say(
        found.refused === null
          ? `What it takes: ${found.needs}.`
          : `Not possible: ${found.refused}`
      );
      this._drawDrafts();
    }
  }

  private _drawDrafts(): void {
    for (const [name, row] of this._rows) {
      const drafted = this._drafts.has(name);
      row.node.classList.toggle('ddpviz-mod-draft', drafted);
      setText(row.changed, drafted ? `was ${valueText(row.one.value)}` : '');
    }
    this._change.draw(this._drafts.size > 0, this._refused, this._applying);
  }

  private _forget(): void {
    this._drafts.clear();
    this._refused = false;
    for (const row of this._rows.values()) {
      row.control.set(row.one.value);
    }
    this._drawDrafts();
    this._change.focusSwitch();
  }

  private async _applyDrafts(): Promise<void> {
    const names = [...this._drafts.keys()]
      .map(name => this._rows.get(name)?.one.label ?? name)
      .join(', ');
    this._applying = true;
    this._change.say('Waits for the end of the chunk that runs …');
    this._enable();
    this._drawDrafts();
    try {
      const outcome = await this._client.set(Object.fromEntries(this._drafts));
      this._drafts.clear();
      const step = this._client.state?.step;
      const when = step === undefined ? '' : ` (at step ${String(step)})`;
      this._change.done(`${names}: ${outcome}${when}.`);
    } catch (error) {
      this._refused = true;
      this._change.say(`Refused: ${messageOf(error)}`);
    }
    this._applying = false;
    this._enable();
    this._drawDrafts();
    if (!this._refused) {
      this._change.focusSwitch();
    }
  }
}

/** Whether the same control still serves. */
function sameShape(before: Switch, now: Switch): boolean {
  const shape = ({
    kind,
    choices,
    min,
    max,
    step,
    group,
    label,
    explanation
  }: Switch) =>
    JSON.stringify([kind, choices, min, max, step, group, label, explanation]);
  return (
    shape(before) === shape(now) &&
    isObject(before.value) === isObject(now.value)
  );
}

function isObject(value: Json): boolean {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
