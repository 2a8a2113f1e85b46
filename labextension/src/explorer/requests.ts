import type { BokehRoot } from './bokeh';
import { bokehOf } from './bokeh';
import type {
  Deck,
  DeckAsked,
  Figure,
  Prediction,
  SlideOffer,
  Switch,
  Values
} from './protocol';
import type { Transport } from './transport';

/** What the kernel is asked of a session, and answers: nothing of it changes what is known here. */
export class Requests {
  constructor(
    readonly transport: Transport,
    readonly session: string
  ) {}

  async figure(view: string): Promise<Figure> {
    const { result } = await this.transport.request('figure', {
      session: this.session,
      view
    });
    return result as Figure;
  }

  /** A text of a view in full. */
  async read(view: string, key: string): Promise<string> {
    const { result } = await this.transport.request('read', {
      session: this.session,
      view,
      key
    });
    const { text } = result as { text?: unknown };
    return typeof text === 'string' ? text : '';
  }

  async slides(): Promise<readonly SlideOffer[]> {
    const { result } = await this.transport.request('slides', {
      session: this.session
    });
    return result as readonly SlideOffer[];
  }

  /** The deck, with its bytes where the browser is to keep it. */
  async deck(
    asked: DeckAsked
  ): Promise<{ deck: Deck; bytes: DataView | null }> {
    const { result, buffers } = await this.transport.request('deck', {
      session: this.session,
      ...asked
    });
    return { deck: result as Deck, bytes: buffers[0] ?? null };
  }

  bokeh(version: string): Promise<BokehRoot> {
    return bokehOf(version, async () => {
      const { buffers } = await this.transport.request('bokehjs');
      const [first] = buffers;
      if (first === undefined) {
        throw new Error(
          'The kernel sent no BokehJS: is bokeh installed there?'
        );
      }
      return new TextDecoder().decode(first);
    });
  }

  async switches(): Promise<readonly Switch[]> {
    const { result } = await this.transport.request('switches', {
      session: this.session
    });
    return result as readonly Switch[];
  }

  async predict(values: Values): Promise<Prediction> {
    const { result } = await this.transport.request('predict', {
      session: this.session,
      values
    });
    return result as Prediction;
  }
}
