import type { FrameHeader, PackedView, SessionState } from './protocol';

export interface Packed {
  readonly packed: PackedView;
  readonly buffer: DataView;
}

/** Frames as one: the newest number and state, and of each view the newest that came. */
export interface Newest {
  readonly sequence: number;
  readonly state: SessionState;
  readonly views: ReadonlyMap<string, Packed>;
}

/**
 * Frames that came and are not drawn yet.
 *
 * They are drawn once all messages that wait for this page were looked through: a browser that
 * takes seconds for a picture finds several, and would draw each of them, later and later.
 */
export class Undrawn {
  private readonly _views = new Map<string, Packed>();
  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _header: FrameHeader | null = null;

  constructor(private readonly _draw: (newest: Newest) => void) {}

  take(header: FrameHeader, buffer: DataView): void {
    this._header = header;
    for (const [view, packed] of Object.entries(header.views)) {
      this._views.set(view, { packed, buffer });
    }
    // A timer's turn comes after the messages that are there already.
    this._timer ??= setTimeout(() => {
      const newest = this._header;
      const views = new Map(this._views);
      this.forget();
      if (newest !== null) {
        this._draw({ sequence: newest.sequence, state: newest.state, views });
      }
    }, 0);
  }

  /** They are of a connection that is gone. */
  forget(): void {
    clearTimeout(this._timer);
    this._timer = undefined;
    this._header = null;
    this._views.clear();
  }
}
