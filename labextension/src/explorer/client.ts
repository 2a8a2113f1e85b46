import { Comparer } from './comparer';
import { Demonstrator } from './demonstrator';
import { Emitter, Endings } from './emitter';
import type { ViewUpdate } from './frame';
import { unpack } from './frame';
import { markFrame } from './marks';
import type {
  FrameHeader,
  SessionState,
  Status,
  Values,
  Watch
} from './protocol';
import { stepLimits } from './protocol';
import { Requests } from './requests';
import type { Selected } from './selection';
import type { Connection, Transport } from './transport';
import { messageOf } from './transport';
import type { Newest } from './undrawn';
import { Undrawn } from './undrawn';

/** The width of the narrowest figure of each view. */
function narrowest(watchers: readonly Watcher[]): Record<string, number> {
  const widths: Record<string, number> = {};
  for (const { view, width_px } of watchers) {
    widths[view] = Math.min(widths[view] ?? Infinity, Math.round(width_px));
  }
  return widths;
}

/** One who looks at a view: a figure in a panel or a cell. */
export interface Watcher {
  readonly view: string;
  /** 0 while it cannot be seen. */
  width_px: number;
  draw(update: ViewUpdate): void;
}

/** What the kernel is told again although nothing changed, so that it keeps a quiet client. */
const KEEP_ALIVE_MS = 20_000;
/** A kernel that is watched says something each second, also while a cell runs. */
const SILENCE_MS = 8000;
const DEFAULT_RATE = 10;
/** A state comes at least so often. */
const STATE_MS = 1000;

/**
 * One session as the browser knows it: its newest state, what is looked at, and which step.
 *
 * All panels of a session share one, so a step or a bucket that is selected in one of them is
 * selected in all.
 */
export class SessionClient extends Requests {
  readonly changed = new Emitter<undefined>();
  readonly selection = new Emitter<Selected>();
  readonly demonstrator: Demonstrator = new Demonstrator(this);
  readonly comparer: Comparer = new Comparer(this);
  /** The switches may differ from what was read last. */
  readonly switchesChanged = new Emitter<undefined>();

  state: SessionState | null = null;
  /** Rises when the kernel's side may be another: figures are then fetched again. */
  epoch = 0;
  /** What the last action met, "" for nothing. */
  problem = '';
  selected: Selected = {};

  private readonly _watchers = new Set<Watcher>();
  private readonly _endings = new Endings();
  private readonly _undrawn = new Undrawn(newest => {
    this._draw(newest);
  });
  private _step: 'newest' | number = 'newest';
  private _rate = DEFAULT_RATE;
  private _receivedAt = 0;
  private _drawn: number | null = null;
  private _heardAt = performance.now();
  private _silent = false;
  private _sequence = -1;
  private _watchTimer: ReturnType<typeof setTimeout> | undefined;
  private _lastWatch = '';
  private _lastAck = 0;
  private _disposed = false;

  constructor(transport: Transport, session: string) {
    super(transport, session);
    const keepAlive = setInterval(() => {
      this._lastWatch = '';
      this._watchSoon();
    }, KEEP_ALIVE_MS);
    const listening = setInterval(() => {
      this._listen();
    }, 1000);
    const onVisibility = () => {
      // Nothing is sent to a hidden page: silence counts from now on.
      this._heardAt = performance.now();
      this._watchSoon();
    };
    document.addEventListener('visibilitychange', onVisibility);
    this._endings.add(
      transport.onFrame((header, buffer) => {
        this._receive(header, buffer);
      }),
      transport.onConnection(connection => {
        this._connectionChanged(connection);
      }),
      () => {
        clearInterval(keepAlive);
        clearInterval(listening);
      },
      () => {
        document.removeEventListener('visibilitychange', onVisibility);
      }
    );
    if (transport.connection === 'connected') {
      this._connectionChanged('connected');
    }
  }

  /** "waiting" also where the comms are open and the kernel is stuck, or was restarted. */
  get connection(): Connection {
    const { connection } = this.transport;
    return connection === 'connected' && this._silent ? 'waiting' : connection;
  }

  /** Seconds since the state was true. */
  get age_s(): number {
    return this._receivedAt === 0
      ? 0
      : (performance.now() - this._receivedAt) / 1000;
  }

  get isDisposed(): boolean {
    return this._disposed;
  }

  dispose(): void {
    this._disposed = true;
    clearTimeout(this._watchTimer);
    this._undrawn.forget();
    this._endings.end();
    this.transport.dispose();
  }

  // --- what is looked at -------------------------------------------------------------------------

  /** Returns what ends it; after a change of `width_px` call `look()`. */
  watch(watcher: Watcher): () => void {
    this._watchers.add(watcher);
    this._watchSoon();
    return () => {
      this._watchers.delete(watcher);
      this._watchSoon();
    };
  }

  look(): void {
    this._watchSoon();
  }

  /** Frames per second, at most. */
  set rate(rate: number) {
    this._rate = Math.min(Math.max(rate, 0.5), DEFAULT_RATE);
  }

  get step(): 'newest' | number {
    return this._step;
  }

  /** The step that is shown: the newest that is drawn, or the one that the user stays at. */
  get shownStep(): number | null {
    if (this._step !== 'newest') {
      return this._step;
    }
    if (this._drawn !== null) {
      return this._drawn;
    }
    const limits = this.state === null ? null : stepLimits(this.state);
    return limits === null ? null : limits[1];
  }

  /** Follow the newest step, or stay at one; kept inside what was recorded. */
  lookAt(step: 'newest' | number): void {
    const limits = this.state === null ? null : stepLimits(this.state);
    const kept =
      step === 'newest' || limits === null
        ? step
        : Math.min(Math.max(step, limits[0]), limits[1]);
    if (kept !== this._step) {
      this._step = kept;
      this._watchSoon();
      this.changed.emit(undefined);
    }
  }

  /** Stay at a step that the state may not tell of yet. */
  stayAt(step: number): void {
    this._step = step;
    this._watchSoon();
    this.changed.emit(undefined);
  }

  /** Select in all views of the session. A step is also looked at. */
  select(selected: Selected): void {
    this.selected = selected;
    this.selection.emit(selected);
    if (selected.step !== undefined) {
      this.lookAt(selected.step);
    }
  }

  private _watchSoon(): void {
    if (this._watchTimer === undefined && !this._disposed) {
      this._watchTimer = setTimeout(() => {
        this._watchTimer = undefined;
        this._watchNow();
      }, 0);
    }
  }

  private _watchNow(): void {
    if (this.transport.connection !== 'connected') {
      return;
    }
    const seen = [...this._watchers].filter(watcher => watcher.width_px > 0);
    const watch: Watch = {
      session: this.session,
      views: [...new Set(seen.map(watcher => watcher.view))].sort(),
      step: this._step,
      hidden: document.visibilityState === 'hidden',
      width_px: Math.round(Math.max(0, ...seen.map(one => one.width_px))),
      widths: narrowest(seen)
    };
    const key = JSON.stringify(watch);
    if (key === this._lastWatch) {
      return;
    }
    this._lastWatch = key;
    this.transport.request('watch', watch).catch((error: unknown) => {
      this._lastWatch = '';
      this._met(error);
    });
  }

  // --- what comes --------------------------------------------------------------------------------

  private _listen(): void {
    const quiet = performance.now() - this._heardAt > SILENCE_MS;
    const silent = quiet && document.visibilityState === 'visible';
    if (silent !== this._silent) {
      this._silent = silent;
      this.changed.emit(undefined);
    }
  }

  private _connectionChanged(connection: Connection): void {
    this._heardAt = performance.now();
    this._silent = false;
    if (connection === 'connected') {
      this.epoch += 1;
      this._sequence = -1;
      this._undrawn.forget();
      this._lastWatch = '';
      this.problem = '';
      this._watchSoon();
      this.switchesChanged.emit(undefined);
    }
    this.changed.emit(undefined);
  }

  private _receive(header: FrameHeader, buffer: DataView): void {
    // Also frames of another session come here where both share a widget's model.
    if (
      header.state.session !== this.session ||
      header.sequence <= this._sequence
    ) {
      return;
    }
    this._sequence = header.sequence;
    this._heardAt = performance.now();
    this._silent = false;
    this._undrawn.take(header, buffer);
  }

  private _sees(view: string): boolean {
    return [...this._watchers].some(
      one => one.view === view && one.width_px > 0
    );
  }

  private _draw({ sequence, state, views }: Newest): void {
    // Only the timeline comes with every step; without it the newest one counts as shown.
    const timeline = views.get('timeline');
    const before = this._sees('timeline') ? this._drawn : null;
    this._drawn = timeline === undefined ? before : timeline.packed.step;
    this.learn(state);
    for (const [view, { packed, buffer }] of views) {
      const watchers = [...this._watchers].filter(one => one.view === view);
      // One that cannot be drawn takes no other with it: the kernel counts all of them as sent.
      let update: ViewUpdate | undefined;
      for (const watcher of watchers) {
        try {
          update ??= unpack(packed, buffer);
          watcher.draw(update);
        } catch (error) {
          this._met(error);
        }
      }
    }
    markFrame(
      sequence,
      [...views].map(([view, { packed }]) => [view, packed.step])
    );
    this._acknowledge(sequence);
  }

  /** Take a newer state of the session. */
  learn(state: SessionState): void {
    const before = this.state;
    this.state = state;
    this._receivedAt = performance.now() - 1000 * state.age_s;
    if (
      before?.status !== state.status ||
      before.workload !== state.workload ||
      before.configured !== state.configured
    ) {
      this.switchesChanged.emit(undefined);
    }
    this.changed.emit(undefined);
  }

  /**
   * Say that the frame is drawn: after the browser has painted it, and no more often than the
   * user wants. The kernel sends the next one only then, so a slow browser never has a queue.
   */
  private _acknowledge(sequence: number): void {
    const acknowledge = () => {
      this._lastAck = performance.now();
      this.transport.request('ack', { sequence }).catch(() => {
        // It was drawn all the same; the kernel goes on without, more slowly.
      });
    };
    const rest = this._lastAck + 1000 / this._rate - performance.now();
    requestAnimationFrame(() => {
      setTimeout(acknowledge, Math.max(0, rest));
    });
  }

  // --- what is asked for -------------------------------------------------------------------------

  /** Returns what it took, "re-wrapped". */
  async set(values: Values): Promise<string> {
    const { result } = await this.transport.request('set', {
      session: this.session,
      values
    });
    this.switchesChanged.emit(undefined);
    const { outcome } = result as { outcome?: unknown };
    return typeof outcome === 'string' ? outcome : 'done';
  }

  /**
   * Do it, until the state tells of it; what it meets is in `problem`, and is thrown too.
   */
  async act(
    action: 'start' | 'stop' | 'restart' | 'close' | 'run',
    args: object = {}
  ): Promise<void> {
    this.problem = '';
    this.changed.emit(undefined);
    const before = this.state?.status;
    try {
      await this.transport.request(action, { session: this.session, ...args });
      await this._statusOtherThan(before);
    } catch (error) {
      this._met(error);
      throw error;
    }
  }

  /** What can be done is told from the state, which comes by another way than the answer. */
  private _statusOtherThan(before: Status | undefined): Promise<void> {
    return new Promise(resolve => {
      const end = () => {
        clearTimeout(timer);
        ended();
        resolve();
      };
      const timer = setTimeout(end, STATE_MS);
      const look = () => {
        if (this.state?.status !== before || this._disposed) {
          end();
        }
      };
      const ended = this.changed.subscribe(look);
      look();
    });
  }

  private _met(error: unknown): void {
    if (!this._disposed && this.connection === 'connected') {
      this.problem = messageOf(error);
      this.changed.emit(undefined);
    }
  }
}
