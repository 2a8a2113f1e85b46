import type { IConsoleTracker } from '@jupyterlab/console';
import type { INotebookTracker } from '@jupyterlab/notebook';
import type { Kernel, ServiceManager } from '@jupyterlab/services';
import { Token } from '@lumino/coreutils';
import type { ISignal } from '@lumino/signaling';
import { Signal } from '@lumino/signaling';

import type { Rescue } from '../explorer/actions';
import type { SessionClient } from '../explorer/client';
import { KernelLink } from './kernel-link';
import type { ServerPart } from './server';

/** How often the server's list of sessions is read where something may have changed it. */
const READ_MS = 5000;

/** What a notebook that opens may take to connect, before its kernel is connected to apart. */
const OPENING_MS = 4000;

export interface Found {
  link: KernelLink;
  client: SessionClient;
}

/** Sessions of all running kernels, found by themselves. */
export interface IDdpSessions {
  readonly server: ServerPart;
  /** Any session, kernel or the focus changed. */
  readonly changed: ISignal<IDdpSessions, undefined>;
  readonly links: readonly KernelLink[];
  /** All sessions, those of the current notebook first, the newest of a kernel first. */
  readonly all: readonly Found[];
  /** The session that the sidebar, the status bar and commands are about. */
  readonly focus: Found | null;
  setFocus(client: SessionClient): void;
  find(session: string): Found | null;
  /** The session of a notebook: the one named where it lives, else its newest. */
  of(path: string, session: string | null): Found | null;
  linkOf(path: string): KernelLink | null;
  rescueOf(client: SessionClient): Rescue;
  setRate(framesPerSecond: number): void;
}

export const IDdpSessions = new Token<IDdpSessions>(
  'ddpviz:IDdpSessions',
  'The DDP sessions of all running kernels.'
);

export class DdpSessions implements IDdpSessions {
  private readonly _changed = new Signal<IDdpSessions, undefined>(this);
  private readonly _links = new Map<string, KernelLink>();
  private readonly _own = new Map<string, Kernel.IKernelConnection>();
  private _focus: SessionClient | null = null;
  private _rate = 10;

  constructor(
    private readonly _services: ServiceManager.IManager,
    readonly server: ServerPart,
    private readonly _notebooks: INotebookTracker | null,
    private readonly _consoles: IConsoleTracker | null
  ) {
    const match = () => {
      this._match();
    };
    _services.kernels.runningChanged.connect(match);
    _services.sessions.runningChanged.connect(match);
    server.changed.connect(() => {
      this._match();
      this._changed.emit(undefined);
    });
    for (const tracker of [_notebooks, _consoles]) {
      tracker?.widgetAdded.connect((_, panel) => {
        panel.sessionContext.kernelChanged.connect(match);
        panel.sessionContext.ready.then(match, match);
        panel.disposed.connect(match);
      });
    }
    _notebooks?.currentChanged.connect(() => {
      this._changed.emit(undefined);
    });
    void _services.ready.then(() => {
      void server.read();
      match();
    });
    setInterval(() => {
      if (this._isWorthReading()) {
        void server.read();
      }
    }, READ_MS);
    window.addEventListener('pagehide', () => {
      // The kernel would go on sending to comms that nobody reads.
      for (const link of this._links.values()) {
        link.dispose();
      }
    });
  }

  get changed(): ISignal<IDdpSessions, undefined> {
    return this._changed;
  }

  get links(): readonly KernelLink[] {
    return [...this._links.values()];
  }

  get all(): readonly Found[] {
    const current = this._notebooks?.currentWidget?.context.path;
    const found = this.links.flatMap(link =>
      [...link.sessions.values()].reverse().map(client => ({ link, client }))
    );
    const here = found.filter(one => one.link.path === current);
    return [...here, ...found.filter(one => one.link.path !== current)];
  }

  get focus(): Found | null {
    const all = this.all;
    return all.find(one => one.client === this._focus) ?? all[0] ?? null;
  }

  setFocus(client: SessionClient): void {
    this._focus = client;
    this._changed.emit(undefined);
  }

  find(session: string): Found | null {
    return this.all.find(one => one.client.session === session) ?? null;
  }

  of(path: string, session: string | null): Found | null {
    const all = this.all.filter(one => one.link.path === path);
    return all.find(one => one.client.session === session) ?? all[0] ?? null;
  }

  linkOf(path: string): KernelLink | null {
    return this.links.find(link => link.path === path) ?? null;
  }

  rescueOf(client: SessionClient): Rescue {
    const server = this.server;
    return {
      get unavailable() {
        return server.whyNot(client.session);
      },
      kill: () => server.signal(client.session, 'kill')
    };
  }

  setRate(framesPerSecond: number): void {
    this._rate = framesPerSecond;
    for (const link of this._links.values()) {
      link.rate = framesPerSecond;
      for (const client of link.sessions.values()) {
        client.rate = framesPerSecond;
      }
    }
  }

  // --- kernels and connections to them -----------------------------------------------------------

  /** Bring links and connections in line with the kernels that run and what is open. */
  private _match(): void {
    const running = new Set(
      [...this._services.kernels.running()].map(model => model.id)
    );
    for (const [id, link] of this._links) {
      if (!running.has(id)) {
        this._links.delete(id);
        this._leave(id);
        link.dispose();
      }
    }
    const documents = this._documentKernels();
    const paths = new Map<string, string>();
    for (const session of this._services.sessions.running()) {
      // A console of the notebook's kernel has a path of its own.
      const id = session.kernel?.id;
      if (id !== undefined && (session.type === 'notebook' || !paths.has(id))) {
        paths.set(id, session.path);
      }
    }
    for (const id of running) {
      const link = this._links.get(id) ?? this._newLink(id);
      link.path = paths.get(id) ?? '';
      const known = this.server.sessions.some(one => one.kernel_id === id);
      const document = documents.get(id);
      if (document !== undefined) {
        this._leave(id, link, document);
      } else if (known || this.server.state === 'missing') {
        const rest = link.seenAt + OPENING_MS - performance.now();
        if (rest <= 0 || this._own.has(id)) {
          link.use(this._ownConnection(id));
        } else {
          setTimeout(() => {
            this._match();
          }, rest);
        }
      } else {
        this._leave(id, link, null);
      }
      if (known) {
        void link.ask();
      } else if (this.server.state === 'missing') {
        link.askOnce();
      }
    }
    this._changed.emit(undefined);
  }

  private _newLink(id: string): KernelLink {
    const link = new KernelLink(id);
    link.rate = this._rate;
    link.changed.connect(() => {
      this._changed.emit(undefined);
      if (this.server.state === 'present') {
        void this.server.read();
      }
    });
    this._links.set(id, link);
    return link;
  }

  /** Connections of open notebooks and consoles; the one that handles comms where there is one. */
  private _documentKernels(): Map<string, Kernel.IKernelConnection> {
    const found = new Map<string, Kernel.IKernelConnection>();
    const look = (kernel: Kernel.IKernelConnection | null | undefined) => {
      if (kernel != null && !kernel.isDisposed && kernel.handleComms) {
        found.set(kernel.id, kernel);
      }
    };
    this._notebooks?.forEach(panel => {
      look(panel.sessionContext.session?.kernel);
    });
    this._consoles?.forEach(panel => {
      look(panel.sessionContext.session?.kernel);
    });
    return found;
  }

  private _ownConnection(id: string): Kernel.IKernelConnection {
    let own = this._own.get(id);
    if (own === undefined || own.isDisposed) {
      const model = [...this._services.kernels.running()].find(
        one => one.id === id
      );
      own = this._services.kernels.connectTo({
        model: model ?? { id, name: '' },
        // See BareComm: the comms of other pages would be closed.
        handleComms: false
      });
      this._own.set(id, own);
    }
    return own;
  }

  /** Use `instead`, and end a connection of our own. */
  private _leave(
    id: string,
    link: KernelLink | null = null,
    instead: Kernel.IKernelConnection | null = null
  ): void {
    link?.use(instead);
    this._own.get(id)?.dispose();
    this._own.delete(id);
  }

  /** A kernel that mentions ddpviz may have made a session in the cell that still runs. */
  private _isWorthReading(): boolean {
    return (
      this.server.state === 'unknown' ||
      (this.server.state === 'present' &&
        document.visibilityState === 'visible' &&
        this._links.size > 0)
    );
  }
}
