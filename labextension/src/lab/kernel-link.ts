import type { Kernel, KernelMessage } from '@jupyterlab/services';
import { KernelMessage as Messages } from '@jupyterlab/services';
import type { ISignal } from '@lumino/signaling';
import { Signal } from '@lumino/signaling';

import { SessionClient } from '../explorer/client';
import type { SessionState } from '../explorer/protocol';
import { commOn, forgetSubshells } from './comm';
import { CommTransport } from './comm-transport';

/** What is said of a kernel that has no session to show. */
export type KernelCondition =
  'quiet' | 'connecting' | 'connected' | 'restarting' | 'dead';

const REOPEN_MS = 1000;
const LOST_MS = 6000;

/**
 * How long nothing is sent to a kernel that restarts: JupyterLab then closes its socket and opens
 * another. jupyter_server 2.21 takes what arrives in the first one's last moment for a message of
 * the old protocol, and with it gigabytes of memory.
 */
const CALM_MS = 3000;
const MENTIONS_DDPVIZ = /\bddpviz\b|%ddp/;

/**
 * One running kernel, and the sessions that were found in it.
 *
 * A kernel is only asked once there is reason to: its code mentions ddpviz, or the server knows a
 * session of it. Asking a kernel that has none costs a line in its log, so it is done at most once
 * for each cell that ends.
 */
export class KernelLink {
  readonly sessions = new Map<string, SessionClient>();
  /** Path of its notebook or console, "" for none. */
  path = '';
  readonly seenAt = performance.now();
  /** What its sessions' panels are fed at most, in frames per second. */
  rate = 10;

  private readonly _changed = new Signal<this, undefined>(this);
  private readonly _transports = new Map<string, CommTransport>();
  private _finder: CommTransport | null = null;
  private _kernel: Kernel.IKernelConnection | null = null;
  private _mentioned = false;
  private _askAtIdle = false;
  private _asking = false;
  private _restartedAt = 0;
  private _askAgain = false;
  private _askedOnce = false;
  private _disposed = false;
  private _condition: KernelCondition = 'quiet';

  constructor(readonly id: string) {}

  get changed(): ISignal<this, undefined> {
    return this._changed;
  }

  get condition(): KernelCondition {
    return this._condition;
  }

  get kernel(): Kernel.IKernelConnection | null {
    return this._kernel;
  }

  /** Use that connection from now on; null for none. */
  use(kernel: Kernel.IKernelConnection | null): void {
    if (kernel === this._kernel) {
      return;
    }
    const before = this._kernel;
    if (before !== null && !before.isDisposed) {
      before.iopubMessage.disconnect(this._onIOPub, this);
      before.statusChanged.disconnect(this._onStatus, this);
      before.connectionStatusChanged.disconnect(this._onConnection, this);
    }
    const asked = this._finder !== null;
    this._kernel = kernel;
    this._lose('The connection to the kernel changed.', 'quiet');
    if (kernel !== null) {
      kernel.iopubMessage.connect(this._onIOPub, this);
      kernel.statusChanged.connect(this._onStatus, this);
      kernel.connectionStatusChanged.connect(this._onConnection, this);
      if (asked) {
        void this.ask();
      }
    }
  }

  /**
   * Ask the kernel for its sessions, unless it is connected or being asked. `anew`: what was asked
   * and not answered was lost, as it is while a kernel restarts.
   */
  async ask(anew = false): Promise<void> {
    if (this._asking) {
      this._askAgain = true;
      if (anew) {
        this._finder?.disconnect('It was asked anew.');
      }
      return;
    }
    if (
      this._disposed ||
      this._kernel === null ||
      this._finder?.connection === 'connected'
    ) {
      return;
    }
    const wait = this._restartedAt + CALM_MS - Date.now();
    if (wait > 0) {
      setTimeout(() => void this.ask(anew), wait);
      return;
    }
    this._asking = true;
    this._become('connecting');
    const lost = setTimeout(() => {
      // A busy kernel answers when its cell has ended; one that is idle has not heard it.
      if (this._kernel?.status === 'idle') {
        void this.ask(true);
      }
    }, LOST_MS);
    try {
      const finder = (this._finder ??= this._newFinder());
      const found = await finder.connect();
      this._become(found ? 'connected' : 'quiet');
      if (found) {
        this._mentioned = true;
      }
    } finally {
      clearTimeout(lost);
      this._asking = false;
    }
    if (this._askAgain) {
      this._askAgain = false;
      await this.ask();
    }
  }

  /** Ask one time only: where nothing tells whether there is a session. */
  askOnce(): void {
    if (!this._askedOnce && this._kernel !== null) {
      this._askedOnce = true;
      void this.ask();
    }
  }

  dispose(): void {
    this._disposed = true;
    this.use(null);
    this._forgetSessions();
    this._finder?.dispose();
    Signal.clearData(this);
  }

  // --- sessions ----------------------------------------------------------------------------------

  private _newFinder(): CommTransport {
    const finder = new CommTransport(target => this._open(target));
    finder.onSessions(states => {
      this._take(states);
    });
    finder.onConnection(connection => {
      if (connection === 'waiting' && this._condition === 'connected') {
        // The kernel closed it, as it does for a page that slept.
        this._become('quiet');
        setTimeout(() => {
          void this.ask();
        }, REOPEN_MS);
      }
    });
    return finder;
  }

  private async _open(target: string) {
    const kernel = this._kernel;
    return kernel === null || kernel.isDisposed ? null : commOn(kernel, target);
  }

  private _take(states: readonly SessionState[]): void {
    const live = new Set(states.map(state => state.session));
    for (const [id, client] of this.sessions) {
      if (!live.has(id)) {
        this.sessions.delete(id);
        this._transports.delete(id);
        client.dispose();
      }
    }
    for (const state of states) {
      let client = this.sessions.get(state.session);
      if (client === undefined) {
        const transport = new CommTransport(target => this._open(target));
        client = new SessionClient(transport, state.session);
        client.rate = this.rate;
        this.sessions.set(state.session, client);
        this._transports.set(state.session, transport);
        this._keepOpen(client, transport);
      }
      client.learn(state);
      if (client.connection !== 'connected') {
        void this._transports.get(state.session)?.connect();
      }
    }
    this._changed.emit(undefined);
  }

  /** Open it again where the kernel closed it although it has the session. */
  private _keepOpen(client: SessionClient, transport: CommTransport): void {
    let opened = false;
    transport.onConnection(connection => {
      if (connection === 'waiting' && opened) {
        opened = false;
        setTimeout(() => {
          if (
            this.sessions.get(client.session) === client &&
            this._condition === 'connected' &&
            transport.connection === 'waiting'
          ) {
            void transport.connect();
          }
        }, REOPEN_MS);
      }
      opened ||= connection === 'connected';
      this._changed.emit(undefined);
    });
  }

  /** All that was connected no longer is. */
  private _lose(why: string, condition: KernelCondition): void {
    for (const transport of this._transports.values()) {
      transport.disconnect(why);
    }
    this._finder?.disconnect(why);
    this._become(condition);
  }

  private _become(condition: KernelCondition): void {
    if (condition !== this._condition) {
      this._condition = condition;
      this._changed.emit(undefined);
    }
  }

  // --- what the kernel tells ---------------------------------------------------------------------

  private _onIOPub(
    _: Kernel.IKernelConnection,
    message: KernelMessage.IIOPubMessage
  ): void {
    if (Messages.isExecuteInputMsg(message)) {
      this._mentioned ||= MENTIONS_DDPVIZ.test(message.content.code);
      this._askAtIdle = this._mentioned;
    } else if (
      this._askAtIdle &&
      Messages.isStatusMsg(message) &&
      message.content.execution_state === 'idle' &&
      message.parent_header.msg_type === 'execute_request'
    ) {
      this._askAtIdle = false;
      void this.ask(true);
    }
  }

  private _onStatus(
    kernel: Kernel.IKernelConnection,
    status: Kernel.Status
  ): void {
    switch (status) {
      // All that a page hears of a restart that another page, or a script, asked for.
      case 'starting':
      case 'restarting':
      case 'autorestarting':
        this._restartedAt = Date.now();
        forgetSubshells(kernel);
        this._lose('The kernel restarts.', 'restarting');
        this._forgetSessions();
        break;
      case 'dead':
      case 'terminating':
        this._lose('The kernel is gone.', 'dead');
        this._forgetSessions();
        break;
      case 'idle':
        if (this._condition === 'restarting') {
          this._become('quiet');
        }
        break;
      default:
        break;
    }
  }

  /** A kernel that starts anew has none of its sessions any more. */
  private _forgetSessions(): void {
    for (const client of this.sessions.values()) {
      client.dispose();
    }
    this.sessions.clear();
    this._transports.clear();
    this._changed.emit(undefined);
  }

  private _onConnection(
    _: Kernel.IKernelConnection,
    status: Kernel.ConnectionStatus
  ): void {
    if (status === 'connected') {
      // Messages were lost meanwhile: everything is opened anew.
      if (this._finder !== null) {
        void this.ask();
      }
    } else {
      this._lose('The connection to the server is gone.', 'quiet');
    }
  }
}
