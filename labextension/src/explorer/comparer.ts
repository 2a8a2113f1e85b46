import type { SessionClient } from './client';
import { Emitter } from './emitter';
import type { Comparable, Compared, SessionState } from './protocol';
import { messageOf } from './transport';

/** Why nothing can be compared now; null where it can. */
export function whyNotCompare(
  state: SessionState | null,
  connected: boolean
): string | null {
  if (!connected || state === null) {
    return 'the kernel does not answer';
  }
  if (state.recording === true) {
    return 'this is a recording, and a comparison needs ranks that run: ddpviz.Session()';
  }
  switch (state.status) {
    case 'training':
      return 'training runs: stop it first';
    case 'waiting':
      return 'the ranks are busy: wait for them, or stop them first';
    case 'demonstrating':
      return 'a demonstration runs: wait for it, or stop it';
    case 'comparing':
      return 'one runs: wait for it, or stop it';
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
      return state.workload === ''
        ? 'no workload is loaded: session.load("convnet")'
        : null;
  }
}

/** Compares compile modes on a session, and keeps what the last one found until it is dismissed. */
export class Comparer {
  readonly changed = new Emitter<undefined>();

  found: Compared | null = null;
  /** Why the last one found nothing, "" for nothing. */
  problem = '';
  running = false;

  constructor(private readonly _client: SessionClient) {}

  /** What can be compared; asks a rank, so the session has to be idle. */
  async offered(): Promise<Comparable> {
    const { session, transport } = this._client;
    const { result } = await transport.request('comparable', { session });
    return result as Comparable;
  }

  async run(
    modes: readonly string[],
    backend: string,
    rounds: number
  ): Promise<void> {
    if (this.running) {
      return;
    }
    const { session, transport } = this._client;
    this.running = true;
    this.found = null;
    this.problem = '';
    this.changed.emit(undefined);
    try {
      const { result } = await transport.request('compare', {
        session,
        modes,
        backend,
        rounds
      });
      this.found = result as Compared;
    } catch (error) {
      this.problem = messageOf(error);
    }
    this.running = false;
    this.changed.emit(undefined);
  }

  dismiss(): void {
    this.found = null;
    this.problem = '';
    this.changed.emit(undefined);
  }
}
