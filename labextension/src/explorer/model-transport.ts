import type { Reply } from './transport';
import { MessageTransport } from './transport';

/** What anywidget's model offers of what is used here. */
export interface WidgetModel {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  send(content: object): void;
  on(event: 'msg:custom', callback: MessageCallback): void;
  off(event: 'msg:custom', callback: MessageCallback): void;
}

type MessageCallback = (
  content: Readonly<Record<string, unknown>>,
  buffers: readonly DataView[]
) => void;

/** After that long without any answer, though some was asked for, the kernel is gone. */
const SILENCE_MS = 15_000;

/** The explorer's way to the kernel through a widget's model. */
export class ModelTransport extends MessageTransport {
  /** Several pages may share one model, each looking at another step. */
  private readonly _page = Math.random().toString(36).slice(2);
  private readonly _watchdog: ReturnType<typeof setInterval>;
  private _heardAt = performance.now();

  constructor(private readonly _model: WidgetModel) {
    super();
    _model.on('msg:custom', this._receive);
    this._watchdog = setInterval(() => {
      const silent = performance.now() - this._heardAt > SILENCE_MS;
      if (silent && this._requests.waiting > 0) {
        this._become('disconnected');
      }
    }, 1000);
  }

  async request(action: string, args: object = {}): Promise<Reply> {
    if (this._requests.waiting === 0) {
      // Silence counts from the first question that is not answered.
      this._heardAt = performance.now();
    }
    return this._requests.ask(id => {
      this._model.send({ request: id, page: this._page, action, args });
    });
  }

  dispose(): void {
    clearInterval(this._watchdog);
    this._model.off('msg:custom', this._receive);
    this._requests.rejectAll('The explorer was closed.');
  }

  private readonly _receive: MessageCallback = (content, buffers) => {
    const { page } = content;
    if (typeof page === 'string' && page !== this._page) {
      return;
    }
    this._heardAt = performance.now();
    this._become('connected');
    if ('reply' in content) {
      this._requests.settle(content['reply'], content, buffers);
    } else {
      this._take(content, buffers);
    }
  };
}
