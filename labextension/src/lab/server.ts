import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import type { ISignal } from '@lumino/signaling';
import { Signal } from '@lumino/signaling';

/** A session in the registry that the server reads: what is known of it without its kernel. */
export interface Registered {
  session: string;
  kernel_id: string | null;
  kernel_alive: boolean;
  ranks: readonly { rank: number; pid: number; host: string; alive: boolean }[];
}

export type ServerState = 'unknown' | 'present' | 'missing';

/** What to do where the server part is missing, in a sentence. */
export const SERVER_MISSING =
  'the server part of ddpviz is off: run "jupyter server extension enable ddpviz.lab" where ' +
  'JupyterLab runs, and start it again';

/** ddpviz's part of the Jupyter server: it reaches the engines of a kernel that is stuck. */
export class ServerPart {
  state: ServerState = 'unknown';
  sessions: readonly Registered[] = [];

  private readonly _changed = new Signal<this, undefined>(this);
  private _reading: Promise<void> | null = null;

  constructor(private readonly _settings: ServerConnection.ISettings) {}

  get changed(): ISignal<this, undefined> {
    return this._changed;
  }

  /** Why engines cannot be ended through it; null where they can. */
  whyNot(session: string): string | null {
    if (this.state === 'missing') {
      return 'the server part of ddpviz is off';
    }
    const known = this.sessions.find(one => one.session === session);
    if (known === undefined) {
      return 'the server does not know the processes of this session';
    }
    return known.ranks.some(rank => rank.alive)
      ? null
      : 'its engines are gone already';
  }

  /** Read the registry; several at once are one. */
  read(): Promise<void> {
    this._reading ??= this._read().finally(() => {
      this._reading = null;
    });
    return this._reading;
  }

  /** What was done, in a sentence. */
  async signal(session: string, what: 'interrupt' | 'kill'): Promise<string> {
    const path = `ddpviz/sessions/${encodeURIComponent(session)}/${what}`;
    const answer = await this._fetch(path, 'POST');
    void this.read();
    const { message } = answer as { message?: unknown };
    return typeof message === 'string' ? message : 'Done.';
  }

  private async _read(): Promise<void> {
    const before = JSON.stringify([this.state, this.sessions]);
    try {
      const answer = await this._fetch('ddpviz/sessions', 'GET');
      this.sessions = (answer as { sessions: readonly Registered[] }).sessions;
      this.state = 'present';
    } catch (error) {
      if (
        error instanceof ServerConnection.ResponseError &&
        error.response.status === 404
      ) {
        this.state = 'missing';
        this.sessions = [];
      }
      // Any other failure may pass: what was known stays.
    }
    if (JSON.stringify([this.state, this.sessions]) !== before) {
      this._changed.emit(undefined);
    }
  }

  private async _fetch(path: string, method: 'GET' | 'POST'): Promise<unknown> {
    const url = URLExt.join(this._settings.baseUrl, path);
    const response = await ServerConnection.makeRequest(
      url,
      { method },
      this._settings
    );
    const answer: unknown = await response.json().catch(() => ({}));
    if (!response.ok) {
      const { message } = answer as { message?: unknown };
      throw new ServerConnection.ResponseError(
        response,
        typeof message === 'string' && message !== ''
          ? message
          : `The server answered ${String(response.status)}.`
      );
    }
    return answer;
  }
}
