import type { SessionClient } from './client';
import { element, newId } from './dom';
import { Endings } from './emitter';
import { FigureView } from './figure';
import { VIEWS, VIEW_LABELS } from './protocol';
import type { ViewName } from './protocol';

/** A tab, and the views that it shows beside each other. */
interface Tab {
  readonly label: string;
  readonly views: readonly ViewName[];
}

const OVERVIEW: readonly ViewName[] = ['steps', 'plan'];

const TABS: readonly Tab[] = [
  { label: 'Steps and plan', views: OVERVIEW },
  ...VIEWS.filter(view => view !== 'timeline' && view !== 'steps').map(
    view => ({ label: VIEW_LABELS[view], views: [view] })
  )
];

/** The views below the timeline, one tab at a time: only what is shown is watched. */
export class ViewTabs {
  readonly node: HTMLElement;

  private readonly _panel: HTMLElement;
  private readonly _buttons: HTMLButtonElement[];
  private _shown = new Endings();
  private _place = -1;

  constructor(private readonly _client: SessionClient) {
    const id = newId('view');
    this._panel = element('div', {
      attributes: { role: 'tabpanel', id, tabindex: '-1' }
    });
    this._buttons = TABS.map((tab, place) =>
      element(
        'button',
        {
          class: 'ddpviz-tab',
          attributes: { type: 'button', role: 'tab', 'aria-controls': id },
          on: {
            click: () => {
              this._show(place);
            }
          }
        },
        tab.label
      )
    );
    this.node = element(
      'div',
      { class: 'ddpviz-views' },
      element(
        'div',
        {
          class: 'ddpviz-tabs',
          attributes: { role: 'tablist', 'aria-label': 'Views' },
          on: {
            keydown: event => {
              this._key(event as KeyboardEvent);
            }
          }
        },
        ...this._buttons
      ),
      this._panel
    );
    this._show(0);
  }

  dispose(): void {
    this._shown.end();
  }

  /** Open the tab of a view; whether there is one. */
  open(view: string): boolean {
    const place = TABS.findIndex(
      ({ views }) => views.length === 1 && views[0] === view
    );
    this._show(place);
    return place >= 0;
  }

  private _show(place: number): void {
    const tab = TABS[place];
    if (tab === undefined || place === this._place) {
      return;
    }
    this._place = place;
    this._buttons.forEach((button, at) => {
      button.setAttribute('aria-selected', String(at === place));
      button.tabIndex = at === place ? 0 : -1;
    });
    this._shown.end();
    this._shown = new Endings();
    const folded = tab.views.length > 1;
    const figures = tab.views.map(
      view => new FigureView(this._client, view, folded)
    );
    this._panel.className = folded ? 'ddpviz-multiples' : 'ddpviz-one';
    this._panel.replaceChildren(...figures.map(figure => figure.node));
    for (const figure of figures) {
      this._shown.add(() => {
        figure.dispose();
      });
    }
  }

  /** Arrows go from tab to tab, as everywhere. */
  private _key(event: KeyboardEvent): void {
    const at = this._buttons.findIndex(button => button === event.target);
    const moves: Readonly<Record<string, number>> = {
      ArrowLeft: at - 1,
      ArrowRight: at + 1,
      Home: 0,
      End: TABS.length - 1
    };
    const to = moves[event.key];
    if (at < 0 || to === undefined) {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
    const place = (to + TABS.length) % TABS.length;
    this._show(place);
    this._buttons[place]?.focus();
  }
}
