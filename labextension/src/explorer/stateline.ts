import { Findings } from './audit';
import type { SessionClient } from './client';
import { element, setText, show } from './dom';
import { Endings } from './emitter';
import { age, number, plural, share } from './format';
import type { SessionState, Status } from './protocol';
import type { Connection } from './transport';
import { WaitingTable } from './waiting';

/** A status as a sign and a word: never by colour alone. */
export const STATUS: Readonly<Record<Status, readonly [string, string]>> = {
  idle: ['○', 'idle'],
  training: ['▶', 'training'],
  starting: ['◌', 'starting'],
  restarting: ['◌', 'restarting'],
  loading: ['◌', 'loading'],
  waiting: ['◔', 'waiting'],
  demonstrating: ['▶', 'demonstrating'],
  comparing: ['▶', 'comparing'],
  failed: ['✕', 'failed'],
  closed: ['–', 'closed']
};

/** What is wrong with the connection, "" for nothing. */
export function connectionWords(connection: Connection, age_s: number): string {
  switch (connection) {
    case 'connected':
      return '';
    case 'waiting':
      return age_s < 3
        ? 'Waits for the kernel to answer.'
        : `The kernel does not answer: it is stuck, or was restarted. This is from ${age(age_s)} ago.`;
    case 'disconnected':
      return `Disconnected from the kernel; this is from ${age(age_s)} ago.`;
  }
}

/** Status as it is shown: what is not connected is not called training. */
export function statusPill(
  state: SessionState | null,
  connection: Connection
): { sign: string; word: string; kind: string } {
  if (connection === 'disconnected') {
    return { sign: '⚠', word: 'disconnected', kind: 'failed' };
  }
  if (state === null || connection === 'waiting') {
    return { sign: '◔', word: 'waiting', kind: 'waiting' };
  }
  const [sign, word] = STATUS[state.status];
  return { sign, word, kind: state.status };
}

/** The numbers of the session, in the order they matter. */
export function facts(state: SessionState): string[] {
  const found = [
    state.workload === '' ? state.name : state.workload,
    plural(state.world_size, 'rank'),
    state.backend,
    state.step < 0
      ? 'no step yet'
      : `step ${state.step.toLocaleString('en-US')}`
  ];
  if (state.steps_per_second !== null) {
    found.push(`${number(state.steps_per_second)} steps/s`);
  }
  if (state.step_ms !== null) {
    found.push(`${number(state.step_ms)} ms a step`);
  }
  if (state.exposed_share !== null) {
    found.push(`${share(state.exposed_share)} exposed`);
  }
  return found.filter(fact => fact !== '');
}

/** Why it is in its state, and what to do: one or two sentences, "" where all is said. */
export function why(state: SessionState): string {
  const failure = state.failure;
  const said = failure === null ? state.reason : failure.message;
  return [said, state.hint].filter(part => part !== '').join(' · ');
}

/** One line: status, workload, ranks, backend, step, steps/s, exposed share, findings. */
export class StateLine {
  readonly node: HTMLElement;

  private readonly _pill: HTMLElement;
  private readonly _facts: HTMLElement;
  readonly findings: Findings;
  private readonly _why: HTMLElement;
  private readonly _waiting = new WaitingTable();
  private readonly _problem: HTMLElement;
  private readonly _endings = new Endings();

  constructor(private readonly _client: SessionClient) {
    this._pill = element('span', { class: 'ddpviz-pill' });
    this._facts = element('span', { class: 'ddpviz-facts' });
    this.findings = new Findings(_client);
    this._why = element('p', {
      class: 'ddpviz-why',
      attributes: { 'aria-live': 'polite' }
    });
    this._problem = element('p', {
      class: 'ddpviz-problem',
      attributes: { role: 'alert' }
    });
    this.node = element(
      'header',
      { class: 'ddpviz-stateline' },
      element(
        'div',
        { class: 'ddpviz-row' },
        this._pill,
        this._facts,
        this.findings.badge
      ),
      this._why,
      this._waiting.node,
      this.findings.list,
      this._problem
    );
    const clock = setInterval(() => {
      this._draw();
    }, 1000);
    this._endings.add(
      _client.changed.subscribe(() => {
        this._draw();
      }),
      () => {
        clearInterval(clock);
      }
    );
    this._draw();
  }

  dispose(): void {
    this._endings.end();
  }

  private _draw(): void {
    const { state, connection } = this._client;
    const pill = statusPill(state, connection);
    setText(this._pill, `${pill.sign} ${pill.word}`);
    this._pill.dataset['status'] = pill.kind;
    setText(this._facts, state === null ? '' : facts(state).join(' · '));
    this.findings.draw(
      state?.findings ?? 0,
      state?.audit ?? [],
      state?.audited ?? false,
      state?.unchecked ?? []
    );
    const gone = connectionWords(connection, this._client.age_s);
    const said = gone === '' && state !== null ? why(state) : gone;
    setText(this._why, said);
    show(this._why, said !== '');
    this._waiting.draw(gone === '' ? (state?.waiting ?? []) : []);
    this.node.classList.toggle('ddpviz-mod-failed', state?.failure != null);
    setText(this._problem, this._client.problem);
    show(this._problem, this._client.problem !== '');
  }
}
