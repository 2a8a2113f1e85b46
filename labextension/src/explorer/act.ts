import type { SessionClient } from './client';
import { element, once, show } from './dom';
import { Emitter, Endings } from './emitter';
import type { Json, SessionState } from './protocol';
import { messageOf } from './transport';

/** Why a session cannot do something of its own now; null where it can. `what`: "a comparison". */
export function whyNotAct(
  state: SessionState | null,
  connected: boolean,
  what: string
): string | null {
  if (!connected || state === null) {
    return 'the kernel does not answer';
  }
  if (state.recording === true) {
    return `this is a recording, and ${what} needs ranks that run: ddpviz.Session()`;
  }
  const runs = { demonstrating: 'a demonstration', comparing: 'a comparison' };
  switch (state.status) {
    case 'training':
      return 'training runs: stop it first';
    case 'waiting':
      return 'the ranks are busy: wait for them, or stop them first';
    case 'demonstrating':
    case 'comparing': {
      const one = runs[state.status];
      return `${one === what ? 'one' : one} runs: wait for it, or stop it`;
    }
    case 'starting':
    case 'restarting':
      return 'the engines are not there yet';
    case 'loading':
      return 'the workload is being loaded';
    case 'failed':
      return 'a rank failed: restart first';
    case 'closed':
      return 'the session is closed: make a new one';
    case 'idle':
      return null;
  }
}

/** What a session does for a while when asked; keeps what the last one found until dismissed. */
export abstract class Act<Found> {
  readonly changed = new Emitter<undefined>();

  found: Found | null = null;
  /** Why the last one found nothing, "" for nothing. */
  problem = '';
  running = false;

  constructor(protected readonly _client: SessionClient) {}

  /** Have it done; false where one runs already. */
  protected async _ask(
    request: string,
    args: Readonly<Record<string, Json>>
  ): Promise<boolean> {
    if (this.running) {
      return false;
    }
    const { session, transport } = this._client;
    this.running = true;
    this.found = null;
    this.problem = '';
    this.changed.emit(undefined);
    try {
      const { result } = await transport.request(request, { session, ...args });
      this.found = result as Found;
    } catch (error) {
      this.problem = messageOf(error);
    }
    this.running = false;
    this.changed.emit(undefined);
    return true;
  }

  dismiss(): void {
    this.found = null;
    this.problem = '';
    this.changed.emit(undefined);
  }
}

/** What an act found, until it is dismissed. */
export abstract class FoundNote<Found> {
  readonly node: HTMLElement;

  private readonly _endings = new Endings();
  private _shown: Found | null = null;

  constructor(
    private readonly _act: Act<Found>,
    className: string,
    label: string
  ) {
    this.node = element('div', {
      class: className,
      attributes: { role: 'status', 'aria-label': label, tabindex: '-1' }
    });
    show(this.node, false);
    this._endings.add(
      _act.changed.subscribe(() => {
        this.draw();
      })
    );
  }

  dispose(): void {
    this._endings.end();
  }

  protected abstract _parts(found: Found): HTMLElement[];

  /** To be called once what the parts are made of is there. */
  draw(): void {
    const { found } = this._act;
    if (found === this._shown) {
      return;
    }
    this._shown = found;
    show(this.node, found !== null);
    this.node.replaceChildren(...(found === null ? [] : this._parts(found)));
  }

  protected _button(text: string, press: () => void): HTMLButtonElement {
    return element(
      'button',
      {
        class: 'ddpviz-button',
        attributes: { type: 'button' },
        on: { click: once(press) }
      },
      text
    );
  }

  protected _dismiss(): HTMLButtonElement {
    return this._button('Dismiss', () => {
      this._act.dismiss();
    });
  }
}
