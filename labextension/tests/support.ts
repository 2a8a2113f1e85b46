import type {
  FrameHeader,
  PackedView,
  SessionState
} from '../src/explorer/protocol';
import { Emitter } from '../src/explorer/emitter';
import type { Connection, Reply, Transport } from '../src/explorer/transport';

export function state(change: Partial<SessionState> = {}): SessionState {
  return {
    session: 's1-1',
    name: 'convnet',
    workload: 'convnet',
    backend: 'gloo',
    world_size: 2,
    status: 'idle',
    reason: '',
    step: 7,
    steps_per_second: null,
    exposed_share: null,
    step_ms: null,
    overlap: null,
    hint: '',
    follow_steps: [0, 7],
    failure: null,
    ranks: [],
    age_s: 0,
    findings: 0,
    title: '',
    ...change
  };
}

export function frame(
  sequence: number,
  change: Partial<SessionState> = {},
  views: Record<string, PackedView> = {}
): FrameHeader {
  return { type: 'frame', sequence, state: state(change), views };
}

type Answer = (args: Record<string, unknown>) => unknown;

/** A kernel's end of the protocol that answers as told, and remembers what it was asked. */
export class ScriptedTransport implements Transport {
  connection: Connection = 'connected';
  readonly asked: { action: string; args: Record<string, unknown> }[] = [];
  readonly answers: Record<string, Answer> = {};

  private readonly _frames = new Emitter<[FrameHeader, DataView]>();
  private readonly _connections = new Emitter<Connection>();

  async request(action: string, args: object = {}): Promise<Reply> {
    const named = args as Record<string, unknown>;
    this.asked.push({ action, args: named });
    const result = await this.answers[action]?.(named);
    return { result: result ?? {}, buffers: [] };
  }

  of(action: string): Record<string, unknown>[] {
    return this.asked.filter(one => one.action === action).map(one => one.args);
  }

  send(header: FrameHeader, buffer = new DataView(new ArrayBuffer(0))): void {
    this._frames.emit([header, buffer]);
  }

  become(connection: Connection): void {
    this.connection = connection;
    this._connections.emit(connection);
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

  onSessions(): () => void {
    return () => undefined;
  }

  dispose(): void {
    this.become('disconnected');
  }
}

/** Until what was begun has gone on: timers of no time, promises, animation frames. */
export async function settled(): Promise<void> {
  for (let turn = 0; turn < 3; turn++) {
    await new Promise(resolve => {
      setTimeout(resolve, 0);
    });
  }
}
