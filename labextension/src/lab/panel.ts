import { PathExt } from '@jupyterlab/coreutils';
import type { Message } from '@lumino/messaging';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';

import { ddpvizIcon } from '../icon';
import { element } from '../explorer/dom';
import { Explorer, ViewPanel, surface } from '../explorer/explorer';
import type { SessionClient } from '../explorer/client';
import type { Found, IDdpSessions } from './sessions';
import type { PanelName } from './settings';
import { PANEL_LABELS } from './settings';

/** What a panel shows, kept over a reload of the page. */
export interface PanelArgs {
  view: PanelName;
  /** Of the notebook whose session it shows; "" for a kernel without one. */
  path: string;
  /** The session that was meant; another of the same notebook takes its place once it is gone. */
  session: string | null;
}

/**
 * One view of a notebook's session as a tab of the main area.
 *
 * It outlives its session: after a reload or a restart of the kernel it says that it waits, and
 * shows the notebook's next session.
 */
export class DdpPanel extends Widget {
  /** Its `args` are others, and so is what is to be kept. */
  readonly moved = new Signal<this, undefined>(this);

  private _content: { node: HTMLElement; dispose(): void } | null = null;
  private _client: SessionClient | null = null;
  private readonly _waiting = surface('ddpviz-waiting');

  constructor(
    readonly args: PanelArgs,
    private readonly _sessions: IDdpSessions
  ) {
    super();
    this.addClass('ddpviz-panel');
    this.node.tabIndex = -1;
    this.title.label = PANEL_LABELS[args.view];
    this._name();
    this.title.icon = ddpvizIcon;
    this.title.closable = true;
    this.node.append(this._waiting.node);
    _sessions.changed.connect(this._bind, this);
    this._bind();
  }

  override dispose(): void {
    if (!this.isDisposed) {
      this._sessions.changed.disconnect(this._bind, this);
      this._waiting.end();
      this._content?.dispose();
      super.dispose();
    }
  }

  /** Without the focus it would not be the shell's current widget. */
  protected override onActivateRequest(message: Message): void {
    super.onActivateRequest(message);
    if (!this.node.contains(document.activeElement)) {
      this.node.focus();
    }
  }

  /** Show this session of its notebook. */
  take(session: string | null): void {
    if (session !== null && session !== this.args.session) {
      this.args.session = session;
      this.moved.emit(undefined);
      this._bind();
    }
  }

  private _name(): void {
    const { path, view } = this.args;
    this.title.caption =
      path === '' ? 'DDP' : `${PANEL_LABELS[view]} of ${path}`;
  }

  /** The notebook was renamed, or none was open when the panel was. */
  private _elsewhere(): Found | null {
    const { path, session } = this.args;
    const moved = session === null ? null : this._sessions.find(session);
    const never = path === '' && session === null;
    return moved ?? (never ? this._sessions.focus : null);
  }

  private _bind(): void {
    const { path, session } = this.args;
    const there = this._sessions.of(path, session) ?? this._elsewhere();
    const found = there?.client ?? null;
    if (there !== null && there.link.path !== path) {
      this.args.path = there.link.path;
      this._name();
      this.moved.emit(undefined);
    }
    if (found !== null && found !== this._client) {
      this._content?.dispose();
      this._client = found;
      this.args.session = found.session;
      this._content =
        this.args.view === 'explorer'
          ? new Explorer(found, this._sessions.rescueOf(found))
          : new ViewPanel(found, this.args.view);
      this.node.append(this._content.node);
    }
    // What was shown stays, greyed by itself, until there is something new.
    const gone = found === null;
    this._waiting.node.hidden = !gone;
    if (gone) {
      this._waiting.node.replaceChildren(
        element('p', { attributes: { role: 'status' } }, this._why())
      );
    }
  }

  private _why(): string {
    const { path } = this.args;
    if (path === '') {
      return 'Waits for a DDP session: open a notebook and run the cell that makes one.';
    }
    const name = PathExt.basename(path);
    switch (this._sessions.linkOf(path)?.condition) {
      case undefined:
      case 'dead':
        return `Waits: no kernel runs for ${name}. Open it and run its cells.`;
      case 'connecting':
        return `Waits for the kernel of ${name} to answer.`;
      case 'restarting':
        return `Waits: the kernel of ${name} restarts. Then run the cell that makes a session.`;
      case 'quiet':
      case 'connected':
        return `Waits for a session of ${name}: run the cell that makes one.`;
    }
  }
}
