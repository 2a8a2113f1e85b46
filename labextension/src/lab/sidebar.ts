import { Widget } from '@lumino/widgets';

import { KILL, KILL_TEXT } from '../explorer/actions';
import { Confirm } from '../explorer/confirm';
import { element, once, setText, show } from '../explorer/dom';
import { surface } from '../explorer/explorer';
import { plural } from '../explorer/format';
import { messageOf } from '../explorer/transport';
import { ddpvizIcon } from '../icon';
import type { Registered } from './server';
import { SERVER_MISSING } from './server';
import type { CardCallbacks } from './session-card';
import { SessionCard } from './session-card';
import type { IDdpSessions } from './sessions';

export interface SidebarCallbacks extends CardCallbacks {
  openTour(): void;
  newNotebook(): void;
}

/** Until a session that the server knows, and no kernel here tells of, is shown as stuck. */
const STUCK_MS = 8000;

/** *DDP* at the left: sessions of all running kernels, their ranks, actions and switches. */
export class DdpSidebar extends Widget {
  private readonly _surface = surface('ddpviz-sidebar');
  private readonly _cards = new Map<string, SessionCard>();
  private readonly _cardsPlace = element('div');
  private readonly _missing: HTMLElement;
  private readonly _empty: HTMLElement;
  /** Sessions that the server knows and no kernel has told of, so far. */
  private readonly _awaited = element('p', { class: 'ddpviz-notice' });
  private readonly _stuckPlace = element('div');
  private readonly _said = element('p', { attributes: { role: 'status' } });
  private readonly _silentSince = new Map<string, number>();
  private _stuckShown = '';

  constructor(
    private readonly _sessions: IDdpSessions,
    private readonly _callbacks: SidebarCallbacks
  ) {
    super();
    this.id = 'ddpviz-sidebar';
    this.addClass('ddpviz-sidebar-area');
    this.title.icon = ddpvizIcon;
    this.title.caption = 'DDP: sessions, ranks and switches';
    const button = (text: string, press: () => void) =>
      element(
        'button',
        {
          class: 'ddpviz-button',
          attributes: { type: 'button' },
          on: { click: once(press) }
        },
        text
      );
    this._missing = element(
      'p',
      { class: 'ddpviz-notice' },
      `Kill is not available: ${SERVER_MISSING}.`
    );
    this._empty = element(
      'div',
      { class: 'ddpviz-notice' },
      element(
        'p',
        {},
        'No DDP session runs. One that a notebook makes is found by itself.'
      ),
      element(
        'div',
        { class: 'ddpviz-row' },
        button('Open the tour', () => {
          _callbacks.openTour();
        }),
        button('New DDP notebook', () => {
          _callbacks.newNotebook();
        })
      )
    );
    this._surface.node.append(
      element('h2', {}, 'DDP'),
      this._missing,
      this._empty,
      this._awaited,
      this._cardsPlace,
      this._stuckPlace,
      this._said
    );
    this.node.append(this._surface.node);
    _sessions.changed.connect(this._draw, this);
    this._draw();
  }

  override dispose(): void {
    if (!this.isDisposed) {
      this._sessions.changed.disconnect(this._draw, this);
      this._surface.end();
      for (const card of this._cards.values()) {
        card.dispose();
      }
      super.dispose();
    }
  }

  private _draw(): void {
    const all = this._sessions.all;
    const focus = this._sessions.focus;
    const keys = new Map(
      all.map(found => [`${found.link.id}/${found.client.session}`, found])
    );
    for (const [key, card] of this._cards) {
      if (keys.get(key)?.client !== card.found.client) {
        this._cards.delete(key);
        card.dispose();
      }
    }
    let place: Element | null = this._cardsPlace.firstElementChild;
    for (const [key, found] of keys) {
      let card = this._cards.get(key);
      if (card === undefined) {
        card = new SessionCard(found, this._sessions, this._callbacks);
        this._cards.set(key, card);
      }
      card.setFocus(found.client === focus?.client);
      // Moved only where the order changed: a moved field loses its focus.
      if (card.node === place) {
        place = place.nextElementSibling;
      } else {
        this._cardsPlace.insertBefore(card.node, place);
      }
    }
    show(this._missing, this._sessions.server.state === 'missing');
    this._drawStuck();
  }

  /** Sessions that the server knows and whose kernel does not answer: they can still be ended. */
  private _drawStuck(): void {
    const now = performance.now();
    const silent = this._sessions.server.sessions.filter(
      one =>
        // A script's session is none of a kernel.
        one.kernel_id !== null &&
        one.ranks.some(rank => rank.alive) &&
        this._sessions.find(one.session)?.client.connection !== 'connected'
    );
    for (const one of silent) {
      if (!this._silentSince.has(one.session)) {
        this._silentSince.set(one.session, now);
        setTimeout(() => {
          if (!this.isDisposed) {
            this._drawStuck();
          }
        }, STUCK_MS + 100);
      }
    }
    for (const session of this._silentSince.keys()) {
      if (!silent.some(one => one.session === session)) {
        this._silentSince.delete(session);
      }
    }
    const stuck = silent.filter(
      one => now - (this._silentSince.get(one.session) ?? now) > STUCK_MS
    );
    const awaited = silent.length - stuck.length;
    setText(
      this._awaited,
      `${plural(awaited, 'session')} of a kernel that has not answered yet: ` +
        'it may be in a cell.'
    );
    show(this._awaited, awaited > 0);
    show(this._empty, this._cards.size === 0 && silent.length === 0);
    const shape = JSON.stringify(stuck);
    if (shape === this._stuckShown) {
      return;
    }
    this._stuckShown = shape;
    this._stuckPlace.replaceChildren(...stuck.map(one => this._stuckCard(one)));
  }

  private _stuckCard(one: Registered): HTMLElement {
    const alive = one.ranks.filter(rank => rank.alive).length;
    const why = one.kernel_alive
      ? 'does not answer here, as in a cell that runs or hangs'
      : 'is gone, and they are left';
    const signal = (what: 'interrupt' | 'kill') => {
      this._sessions.server.signal(one.session, what).then(
        said => {
          setText(this._said, said);
        },
        (error: unknown) => {
          setText(this._said, messageOf(error));
        }
      );
    };
    const confirm = new Confirm(KILL_TEXT, KILL.yes, KILL.no, () => {
      signal('kill');
    });
    const button = (label: string, title: string, press: () => void) =>
      element(
        'button',
        {
          class: 'ddpviz-button',
          title,
          attributes: { type: 'button' },
          on: { click: once(press) }
        },
        label
      );
    const kill = button('✕ Kill', 'End its ranks now', () => {
      confirm.ask(kill);
    });
    return element(
      'article',
      { class: 'ddpviz-card' },
      element('div', { class: 'ddpviz-card-name' }, `session ${one.session}`),
      element(
        'p',
        { class: 'ddpviz-quiet' },
        `${plural(alive, 'engine')} of a kernel that ${why}.`
      ),
      element(
        'div',
        { class: 'ddpviz-row' },
        button('Interrupt', 'Send SIGINT to its ranks', () => {
          signal('interrupt');
        }),
        kill
      ),
      confirm.node
    );
  }
}
