import { Act, whyNotAct } from './act';
import { Emitter } from './emitter';
import type {
  Demonstrated,
  DemonstrationFamily,
  SessionState
} from './protocol';

/** Why no demonstration can run now; null where one can. */
export function whyNotDemonstrate(
  state: SessionState | null,
  connected: boolean
): string | null {
  const why = whyNotAct(state, connected, 'a demonstration');
  return why === null && state !== null && state.world_size < 2
    ? 'it shows what ranks do with each other, and this session has one: ddpviz.Session(engines=2)'
    : why;
}

/** Runs demonstrations on a session. */
export class Demonstrator extends Act<Demonstrated> {
  /** One has been found: it is to be shown. */
  readonly shows = new Emitter<Demonstrated>();

  private _families: Promise<readonly DemonstrationFamily[]> | null = null;

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
    if (await this._ask('demonstrate', { name })) {
      this.show();
    }
  }

  /** Go to the step and the view of what was found. */
  show(): void {
    if (this.found !== null) {
      this._client.stayAt(this.found.step);
      this.shows.emit(this.found);
    }
  }
}
