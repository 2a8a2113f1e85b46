import { PathExt } from '@jupyterlab/coreutils';

import { Actions } from '../explorer/actions';
import { Demonstrations } from '../explorer/demonstrations';
import { element, once, setReason, setText, show } from '../explorer/dom';
import { Endings } from '../explorer/emitter';
import { Slides } from '../explorer/slides';
import { StateLine } from '../explorer/stateline';
import { SwitchColumn } from '../explorer/switches';
import type { Found, IDdpSessions } from './sessions';
import type { PanelName } from './settings';
import { PANELS, PANEL_LABELS } from './settings';

export interface CardCallbacks {
  /** Why no panel can be opened here, null where they can. */
  readonly noPanels: string | null;
  openPanel(found: Found, view: PanelName): void;
}

/** A session in the sidebar: its state, ranks, actions, panels and, in focus, its switches. */
export class SessionCard {
  readonly node: HTMLElement;

  private readonly _ranks: HTMLElement;
  private readonly _switchesPlace: HTMLElement;
  private readonly _endings = new Endings();
  private readonly _head: HTMLButtonElement;
  private readonly _body: HTMLElement;
  private _switches: SwitchColumn | null = null;
  private _ranksShown = '';

  constructor(
    readonly found: Found,
    sessions: IDdpSessions,
    callbacks: CardCallbacks
  ) {
    const { client, link } = found;
    const state = new StateLine(client);
    const actions = new Actions(client, sessions.rescueOf(client));
    const demonstrations = new Demonstrations(client);
    const slides = new Slides(client);
    const where =
      link.path === ''
        ? `kernel ${link.id.slice(0, 8)}`
        : PathExt.basename(link.path);
    this._ranks = element('ul', {
      class: 'ddpviz-ranks',
      attributes: { 'aria-label': 'Ranks' }
    });
    this._switchesPlace = element('div');
    this._head = element(
      'button',
      {
        class: 'ddpviz-card-head',
        title: link.path,
        attributes: { type: 'button' },
        on: {
          click: () => {
            sessions.setFocus(client);
          }
        }
      },
      element('span', { class: 'ddpviz-card-name' }, where),
      element('span', { class: 'ddpviz-quiet' }, client.session)
    );
    const open = (text: string, press: () => void, accept = false) =>
      element(
        'button',
        {
          class: `ddpviz-button${accept ? ' ddpviz-mod-accept' : ''}`,
          attributes: { type: 'button' },
          on: { click: once(press) }
        },
        text
      );
    const panels = element(
      'div',
      {
        class: 'ddpviz-row ddpviz-panels',
        attributes: { role: 'group', 'aria-label': 'Open as a panel' }
      },
      ...PANELS.map(view => {
        const button = open(
          PANEL_LABELS[view],
          () => {
            if (callbacks.noPanels === null) {
              callbacks.openPanel(found, view);
            }
          },
          view === 'explorer'
        );
        setReason(button, callbacks.noPanels);
        return button;
      })
    );
    this._body = element(
      'div',
      { class: 'ddpviz-card-body' },
      actions.node,
      this._ranks,
      element(
        'div',
        { class: 'ddpviz-row' },
        demonstrations.toggle,
        slides.toggle
      ),
      demonstrations.node,
      slides.node,
      element('h3', {}, 'Panels'),
      panels,
      element('h3', {}, 'Switches'),
      this._switchesPlace
    );
    this.node = element(
      'article',
      { class: 'ddpviz-card' },
      this._head,
      state.node,
      this._body
    );
    this._endings.add(
      () => {
        state.dispose();
      },
      () => {
        actions.dispose();
      },
      () => {
        demonstrations.dispose();
      },
      () => {
        slides.dispose();
      },
      client.demonstrator.shows.subscribe(() => {
        if (callbacks.noPanels === null) {
          callbacks.openPanel(found, 'explorer');
        }
      }),
      () => {
        this._switches?.dispose();
      },
      client.changed.subscribe(() => {
        this._draw();
      })
    );
    this._draw();
  }

  dispose(): void {
    this._endings.end();
    this.node.remove();
  }

  /** Only the session in focus shows more than its state. */
  setFocus(focused: boolean): void {
    this.node.classList.toggle('ddpviz-mod-focus', focused);
    this._head.setAttribute('aria-expanded', String(focused));
    show(this._body, focused);
    if (focused && this._switches === null) {
      this._switches = new SwitchColumn(this.found.client);
      this._switchesPlace.append(this._switches.node);
    }
  }

  private _draw(): void {
    const ranks = this.found.client.state?.ranks ?? [];
    const shape = ranks.map(one => one.rank).join();
    if (shape !== this._ranksShown) {
      this._ranksShown = shape;
      this._ranks.replaceChildren(
        ...ranks.map(() =>
          element(
            'li',
            {},
            element('span', { class: 'ddpviz-rank' }),
            element('span', { class: 'ddpviz-rank-state' })
          )
        )
      );
    }
    ranks.forEach((one, place) => {
      const row = this._ranks.children[place] as HTMLElement;
      const [name, state] = row.children;
      if (name === undefined || state === undefined) {
        return;
      }
      const dead = one.state === 'dead';
      setText(name, `rank ${String(one.rank)}`);
      setText(state, dead ? '✕ dead' : one.state);
      row.classList.toggle('ddpviz-mod-dead', dead);
      row.title = [
        one.pid === null ? '' : `pid ${String(one.pid)}`,
        one.device,
        one.hostname
      ]
        .filter(part => part !== '')
        .join(' · ');
    });
  }
}
