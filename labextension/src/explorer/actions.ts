import type { SessionClient } from './client';
import { Confirm } from './confirm';
import { element, isDisabled, once, setReason, setText, show } from './dom';
import { Endings } from './emitter';
import type { SessionState } from './protocol';

export type ActionName = 'start' | 'stop' | 'restart' | 'kill';

/** Ways around a kernel that does not answer; only JupyterLab's server has them. */
export interface Rescue {
  /** Why it cannot be used; null where it can. */
  readonly unavailable: string | null;
  /** End the ranks' processes; what it did, in a sentence. */
  kill(): Promise<string>;
}

/** What is asked before ranks are killed: what is lost, and what is kept. */
export const KILL = {
  question: 'Kill the engines?',
  consequence:
    'What runs ends at once, and with the processes weights, optimizer and all that cells left ' +
    'there are lost. What was recorded stays; Restart brings new engines.',
  yes: 'Kill them',
  no: 'Keep them'
} as const;

/** The same as one text. */
export const KILL_TEXT = `${KILL.question} ${KILL.consequence}`;

/** Until a kernel that does not answer is worked around. */
const PATIENCE_MS = 6000;

/** Why an action cannot be taken now; null where it can. */
export function whyNot(
  action: ActionName,
  state: SessionState | null,
  connected: boolean,
  rescue: Rescue | null
): string | null {
  if (action === 'kill') {
    if (rescue === null) {
      return 'only JupyterLab with the server part of ddpviz can kill';
    }
    return state?.status === 'closed'
      ? 'the session is closed, its engines are gone'
      : rescue.unavailable;
  }
  if (!connected || state === null) {
    return action === 'restart' &&
      rescue !== null &&
      rescue.unavailable === null
      ? 'the kernel does not answer: kill ends its engines'
      : 'the kernel does not answer';
  }
  if (state.status === 'closed') {
    return 'the session is closed: make a new one';
  }
  switch (action) {
    case 'start':
      return whyNotStart(state);
    case 'stop':
      return ['training', 'waiting', 'demonstrating', 'comparing'].includes(
        state.status
      )
        ? null
        : 'nothing is training';
    case 'restart':
      return state.status === 'restarting' || state.status === 'starting'
        ? `the engines are ${state.status}`
        : null;
  }
}

function whyNotStart(state: SessionState): string | null {
  switch (state.status) {
    case 'training':
      return 'it trains already';
    case 'waiting':
      return 'the ranks are at work: wait for them, or stop them';
    case 'demonstrating':
      return 'a demonstration runs';
    case 'comparing':
      return 'a comparison runs';
    case 'starting':
    case 'restarting':
      return 'the engines are not there yet';
    case 'loading':
      return 'the workload is being loaded';
    case 'failed':
      return 'a rank failed: restart first';
    case 'idle':
    case 'closed':
      return state.workload === ''
        ? 'no workload is loaded: session.load("convnet")'
        : null;
  }
}

const LABELS: Readonly<Record<ActionName, readonly [string, string]>> = {
  start: ['▶ Start', 'Train in the background'],
  stop: ['■ Stop', 'End training after the step that runs'],
  restart: ['↻ Restart', 'New engines, and the workload from its step 0'],
  kill: ['✕ Kill', "End the ranks' processes now, whatever the kernel is doing"]
};

/** Start, stop, restart and, with a rescue, kill; each says why it is off. */
export class Actions {
  readonly node: HTMLElement;

  private readonly _buttons = new Map<ActionName, HTMLButtonElement>();
  private readonly _reason: HTMLElement;
  private readonly _confirm: Confirm;
  private readonly _endings = new Endings();
  private _doing: ActionName | null = null;
  private _said = '';

  constructor(
    private readonly _client: SessionClient,
    private readonly _rescue: Rescue | null = null
  ) {
    this._reason = element('p', {
      class: 'ddpviz-quiet ddpviz-action-reason',
      attributes: { 'aria-live': 'polite' }
    });
    const names: ActionName[] = ['start', 'stop', 'restart'];
    if (_rescue !== null) {
      names.push('kill');
    }
    const row = element('div', {
      class: 'ddpviz-row ddpviz-actions',
      attributes: { role: 'group', 'aria-label': 'Training' }
    });
    for (const name of names) {
      const [label, title] = LABELS[name];
      const press = () => {
        this._press(name);
      };
      const button = element(
        'button',
        {
          class: 'ddpviz-button',
          title,
          attributes: {
            type: 'button',
            'data-action': name,
            'data-title': title
          },
          on: {
            click: name === 'kill' ? press : once(press)
          }
        },
        label
      );
      this._buttons.set(name, button);
      row.append(button);
    }
    this._confirm = new Confirm(KILL_TEXT, KILL.yes, KILL.no, () => {
      void this._take('kill');
    });
    this.node = element(
      'div',
      { class: 'ddpviz-actions-block' },
      row,
      this._confirm.node,
      this._reason
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

  private _press(name: ActionName): void {
    const button = this._buttons.get(name);
    if (button === undefined || isDisabled(button)) {
      return;
    }
    if (name === 'kill') {
      this._confirm.ask(button);
    } else {
      void this._take(name);
    }
  }

  private async _take(name: ActionName): Promise<void> {
    this._doing = name;
    this._said = '';
    this._draw();
    try {
      await this._do(name);
    } catch (error) {
      // The state line shows what the kernel refused; a rescue's failure is said here.
      if (name === 'kill') {
        this._said = error instanceof Error ? error.message : String(error);
      }
    } finally {
      this._doing = null;
      this._draw();
    }
  }

  private async _do(name: ActionName): Promise<void> {
    if (name === 'kill') {
      this._said = (await this._rescue?.kill()) ?? '';
      return;
    }
    const asked = this._client.act(name);
    const rescue = this._rescue;
    if (name !== 'start' && rescue !== null && rescue.unavailable === null) {
      const slow = setTimeout(() => {
        this._said =
          name === 'stop'
            ? 'The kernel has not answered yet. Kill ends the engines without it.'
            : 'The kernel has not answered yet. Kill ends the old engines; the restart then goes on.';
        this._draw();
      }, PATIENCE_MS);
      asked
        .finally(() => {
          clearTimeout(slow);
          this._said = '';
        })
        .catch(() => {
          // Whoever awaits it hears of it.
        });
    }
    await asked;
  }

  private _draw(): void {
    const { state, connection } = this._client;
    const off: string[] = [];
    for (const [name, button] of this._buttons) {
      const reason =
        this._doing !== null && name !== 'kill'
          ? `${this._doing} is on its way`
          : whyNot(name, state, connection === 'connected', this._rescue);
      setReason(button, reason);
      if (name === 'kill' && reason !== null) {
        this._confirm.close();
      }
      if (reason !== null) {
        off.push(`${name}: ${reason}`);
      }
    }
    // The reasons can be seen and not only hovered, each once.
    const text = this._said !== '' ? this._said : joinReasons(off);
    setText(this._reason, text);
    show(this._reason, text !== '');
  }
}

/** "Start and Kill are off: why." where several are off for the same reason. */
export function joinReasons(off: readonly string[]): string {
  const byReason = new Map<string, string[]>();
  for (const entry of off) {
    const colon = entry.indexOf(': ');
    const reason = entry.slice(colon + 2);
    const names = byReason.get(reason) ?? [];
    names.push(entry.slice(0, colon));
    byReason.set(reason, names);
  }
  return [...byReason]
    .map(([reason, names]) => {
      const which = names.map(
        name => name.slice(0, 1).toUpperCase() + name.slice(1)
      );
      return `${which.join(' and ')} ${names.length > 1 ? 'are' : 'is'} off: ${reason}.`;
    })
    .join(' ');
}
