import { Act, whyNotAct } from './act';
import type { Comparable, Compared, SessionState } from './protocol';

/** Why nothing can be compared now; null where it can. */
export function whyNotCompare(
  state: SessionState | null,
  connected: boolean
): string | null {
  const why = whyNotAct(state, connected, 'a comparison');
  return why === null && state?.workload === ''
    ? 'no workload is loaded: session.load("convnet")'
    : why;
}

/** Compares compile modes on a session. */
export class Comparer extends Act<Compared> {
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
    await this._ask('compare', { modes, backend, rounds });
  }
}
