import { Emitter } from './emitter';
import type { FrameHeader, SessionState } from './protocol';

export type Connection = 'connected' | 'waiting' | 'disconnected';

export interface Reply {
  result: unknown;
  buffers: readonly DataView[];
}

/** The way to one kernel: the lab's two comms, or a widget's model. */
export interface Transport {
  readonly connection: Connection;
  /** Rejects with an Error whose message is one clear sentence. */
  request(action: string, args?: object): Promise<Reply>;
  onFrame(
    callback: (header: FrameHeader, buffer: DataView) => void
  ): () => void;
  onConnection(callback: (connection: Connection) => void): () => void;
  /** The kernel's sessions, told when one is made or closed. */
  onSessions(callback: (sessions: readonly SessionState[]) => void): () => void;
  dispose(): void;
}

interface Pending {
  resolve(reply: Reply): void;
  reject(error: Error): void;
}

/** Requests that wait for their replies, matched by id. */
export class Requests {
  private readonly _pending = new Map<number, Pending>();
  // Several pages may share one widget model: their ids must differ.
  private _last = Math.floor(Math.random() * 2 ** 30) * 2 ** 20;

  /** `post` sends the request of that id. */
  ask(post: (id: number) => void): Promise<Reply> {
    this._last += 1;
    const id = this._last;
    return new Promise((resolve, reject) => {
      this._pending.set(id, { resolve, reject });
      try {
        post(id);
      } catch (error) {
        this._pending.delete(id);
        reject(error instanceof Error ? error : new Error(String(error)));
      }
    });
  }

  /** Settle the request that `data` answers; false where nobody waits for it. */
  settle(
    id: unknown,
    data: Readonly<Record<string, unknown>>,
    buffers: readonly DataView[]
  ): boolean {
    const pending = typeof id === 'number' ? this._pending.get(id) : undefined;
    if (typeof id !== 'number' || pending === undefined) {
      return false;
    }
    this._pending.delete(id);
    if (data['ok'] === true) {
      pending.resolve({ result: data['result'], buffers });
    } else {
      const said = data['error'];
      pending.reject(
        new Error(
          typeof said === 'string' && said !== ''
            ? said
            : 'The kernel refused, and did not say why.'
        )
      );
    }
    return true;
  }

  rejectAll(why: string): void {
    const pending = [...this._pending.values()];
    this._pending.clear();
    for (const one of pending) {
      one.reject(new Error(why));
    }
  }

  get waiting(): number {
    return this._pending.size;
  }
}

/** What the ways to a kernel have in common: who listens, and what a message is for. */
export abstract class MessageTransport implements Transport {
  protected readonly _requests = new Requests();
  private readonly _frames = new Emitter<[FrameHeader, DataView]>();
  private readonly _connections = new Emitter<Connection>();
  private readonly _sessions = new Emitter<readonly SessionState[]>();
  private _connection: Connection = 'waiting';

  abstract request(action: string, args?: object): Promise<Reply>;
  abstract dispose(): void;

  get connection(): Connection {
    return this._connection;
  }

  onFrame(
    callback: (header: FrameHeader, buffer: DataView) => void
  ): () => void {
    return this._frames.subscribe(([header, buffer]) => {
      callback(header, buffer);
    });
  }

  onConnection(callback: (connection: Connection) => void): () => void {
    return this._connections.subscribe(callback);
  }

  onSessions(
    callback: (sessions: readonly SessionState[]) => void
  ): () => void {
    return this._sessions.subscribe(callback);
  }

  protected _become(connection: Connection): void {
    if (connection !== this._connection) {
      this._connection = connection;
      this._connections.emit(connection);
    }
  }

  protected _tellSessions(sessions: unknown): void {
    this._sessions.emit(sessions as readonly SessionState[]);
  }

  /** A frame, or the sessions: what comes without a request. */
  protected _take(
    content: Readonly<Record<string, unknown>>,
    buffers: readonly DataView[]
  ): void {
    if (content['type'] === 'sessions') {
      this._tellSessions(content['sessions']);
    } else if (content['type'] === 'frame') {
      const header = content as unknown as FrameHeader;
      this._frames.emit([
        header,
        buffers[0] ?? new DataView(new ArrayBuffer(0))
      ]);
    }
  }
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
