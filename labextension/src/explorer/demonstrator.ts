import type { SessionClient } from './client';
import { Emitter } from './emitter';
import type {
  Demonstrated,
  DemonstrationFamily,
  SessionState
} from './protocol';
import { messageOf } from './transport';

/** Why no demonstration can run now; null where one can. */
export function whyNotDemonstrate(
  state: SessionState | null,
  connected: boolean
): string | null {
  if (!connected || state === null) {
    return 'the kernel does not answer';
  }
  if (state.recording === true) {
    return 'this is a recording, and a demonstration needs ranks that run: ddpviz.Session()';
  }
  switch (state.status) {
    case 'training':
      return 'training runs: stop it first';
    case 'waiting':
      return 'the ranks are busy: wait for them, or stop them first';
    case 'demonstrating':
      return 'one runs: wait for it, or stop it';
    case 'comparing':
      return 'a comparison runs: wait for it, or stop it';
    case 'starting':
    case 'restarting':
      return 'the engines are not there yet';
    case 'loading':
      return 'the workload is being loaded';
    case 'failed':
      return 'a rank failed: restart first';
    case 'closed':
      return 'the session is closed: make a new one';
    case 'idle':
      return state.world_size < 2
        ? 'it shows what ranks do with each other, and this session has one: ddpviz.Session(engines=2)'
        : null;
  }
}

/** Runs demonstrations on a session, and keeps what the last one found until it is dismissed. */
export class Demonstrator {
  readonly changed = new Emitter<undefined>();
  /** One has been found: it is to be shown. */
  readonly shows = new Emitter<Demonstrated>();

  found: Demonstrated | null = null;
  /** Why the last one found nothing, "" for nothing. */
  problem = '';
  running = false;

  private _families: Promise<readonly DemonstrationFamily[]> | null = null;

  constructor(private readonly _client: SessionClient) {}

  /** All there are. */
  families(): Promise<readonly DemonstrationFamily[]> {
    this._families ??= this._client.transport
      .request('demonstrations')
      .then(({ result }) => result as readonly DemonstrationFamily[])
      .catch((error: unknown) => {
        this._families = null;
        throw error;
      });
    return this._families;
  }

  /** Run one, and have it shown. */
  async run(name: string): Promise<void> {
    if (this.running) {
      return;
    }
    const { session, transport } = this._client;
    this.running = true;
    this.found = null;
    this.problem = '';
    this.changed.emit(undefined);
    try {
      const { result } = await transport.request('demonstrate', {
        session,
        name
      });
      this.found = result as Demonstrated;
    } catch (error) {
      this.problem = messageOf(error);
    }
    this.running = false;
    this.changed.emit(undefined);
    this.show();
  }

  /** Go to the step and the view of what was found. */
  show(): void {
    if (this.found !== null) {
      this._client.stayAt(this.found.step);
      this.shows.emit(this.found);
    }
  }

  dismiss(): void {
    this.found = null;
    this.problem = '';
    this.changed.emit(undefined);
  }
}
