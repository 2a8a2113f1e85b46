/** Tells subscribers; the explorer's only kind of event. */
export class Emitter<T> {
  private readonly _callbacks = new Set<(value: T) => void>();

  /** Returns what ends the subscription. */
  subscribe(callback: (value: T) => void): () => void {
    const own = (value: T) => {
      callback(value);
    };
    this._callbacks.add(own);
    return () => {
      this._callbacks.delete(own);
    };
  }

  emit(value: T): void {
    for (const callback of [...this._callbacks]) {
      callback(value);
    }
  }
}

/** What is to be ended together. */
export class Endings {
  private _endings: (() => void)[] = [];

  add(...endings: (() => void)[]): void {
    this._endings.push(...endings);
  }

  end(): void {
    const endings = this._endings;
    this._endings = [];
    for (const ending of endings.reverse()) {
      ending();
    }
  }
}
