import type { JSONObject, PartialJSONObject } from '@lumino/coreutils';
import { UUID } from '@lumino/coreutils';

import type { Connection, Reply } from '../explorer/transport';
import { MessageTransport } from '../explorer/transport';
import type { Comm } from './comm';

const FRAMES = 'ddpviz.frames';
const CONTROL = 'ddpviz.control';
const VERSION = 1;
const BOTH_CLOSED_MS = 3000;

/** Opens a comm of that target on the kernel as it is now; null where there is none. */
export type OpenComm = (target: string) => Promise<Comm | null>;

/**
 * The way to a kernel through two comms that this page opens.
 *
 * One for frames, on which only the kernel speaks, and one for requests and their replies. Two,
 * because ipykernel 7.4 serves what comes on a comm where that comm was published from last: with
 * frames on it, requests would wait for the cell that runs.
 */
export class CommTransport extends MessageTransport {
  private _pair: { control: Comm; frames: Comm } | null = null;
  private _attempt = 0;
  private _sequence = -1;
  private _disposed = false;

  constructor(private readonly _open: OpenComm) {
    super();
  }

  /**
   * Open both comms anew. Connected once the kernel has answered the first request; resolves to
   * whether it did. A kernel without a session knows no such comms and closes them.
   */
  async connect(): Promise<boolean> {
    this._attempt += 1;
    const attempt = this._attempt;
    this._drop('waiting', 'The connection was made anew.');
    const [frames, control] = await Promise.all([
      this._open(FRAMES),
      this._open(CONTROL)
    ]);
    if (attempt !== this._attempt || this._disposed) {
      frames?.close();
      control?.close();
      return false;
    }
    if (frames === null || control === null) {
      return false;
    }
    this._pair = { control, frames };
    this._sequence = -1;
    frames.onMessage = (data, buffers) => {
      this._receive(data, buffers);
    };
    control.onMessage = (data, buffers) => {
      this._requests.settle(data['id'], data, buffers);
    };
    for (const comm of [frames, control]) {
      comm.onClose = () => {
        if (attempt === this._attempt) {
          this._closedByKernel();
        }
      };
    }
    const data: JSONObject = { version: VERSION, client: UUID.uuid4() };
    frames.open(data);
    control.open(data);
    try {
      const { result } = await this._ask('sessions', {});
      if (attempt === this._attempt) {
        this._become('connected');
        this._tellSessions(result);
        return true;
      }
    } catch {
      // Closed, or made anew meanwhile.
    }
    return false;
  }

  /** The kernel is gone, or will not answer. */
  disconnect(why: string): void {
    this._attempt += 1;
    this._drop('disconnected', why);
  }

  request(action: string, args: object = {}): Promise<Reply> {
    return this.connection === 'connected'
      ? this._ask(action, args)
      : Promise.reject(new Error('The kernel is not connected.'));
  }

  dispose(): void {
    this._disposed = true;
    this._attempt += 1;
    this._drop('disconnected', 'The panel was closed.');
  }

  private _ask(action: string, args: object): Promise<Reply> {
    const pair = this._pair;
    if (pair === null) {
      return Promise.reject(new Error('The kernel is not connected.'));
    }
    return this._requests.ask(id => {
      pair.control.send({
        id,
        action,
        args: args as PartialJSONObject
      } as JSONObject);
    });
  }

  private _receive(data: JSONObject, buffers: readonly DataView[]): void {
    // An old frame that overtook nothing: after a reconnect the numbers begin again.
    const { sequence } = data;
    if (typeof sequence === 'number') {
      if (sequence <= this._sequence) {
        return;
      }
      this._sequence = sequence;
    }
    this._take(data, buffers);
  }

  /**
   * A kernel that closes one comm closes the other too. Ours waits for that: JupyterLab writes an
   * error to the console where a kernel closes a comm that it has forgotten.
   */
  private _closedByKernel(): void {
    const pair = this._pair;
    this._pair = null;
    setTimeout(() => {
      pair?.control.close();
      pair?.frames.close();
    }, BOTH_CLOSED_MS);
    this._drop('waiting', 'The kernel closed the connection.');
  }

  private _drop(connection: Connection, why: string): void {
    const pair = this._pair;
    this._pair = null;
    pair?.control.close();
    pair?.frames.close();
    this._requests.rejectAll(why);
    this._become(connection);
  }
}
