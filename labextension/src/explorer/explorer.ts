import type { Rescue } from './actions';
import { Actions } from './actions';
import type { SessionClient } from './client';
import { element } from './dom';
import { Endings } from './emitter';
import { FigureView } from './figure';
import { listenForKeys } from './keys';
import type { ViewName } from './protocol';
import { StateLine } from './stateline';
import { StepBar } from './steps';
import { SwitchColumn } from './switches';
import { ViewTabs } from './tabs';
import { onTheme, themeNow } from './theme';

/** Its own part of a page, with the theme's colours. */
export function surface(className: string): {
  node: HTMLElement;
  end: () => void;
} {
  const node = element('div', { class: `ddpviz ${className}` });
  const dress = () => {
    node.dataset['theme'] = themeNow();
  };
  dress();
  return { node, end: onTheme(dress) };
}

/**
 * The explorer: state on top, switches on the left, the timeline of the step, and below it the
 * other views, one tab at a time; or, where `views` are wanted, just these.
 */
export class Explorer {
  readonly node: HTMLElement;
  /** The first of its figures. */
  readonly first: FigureView;

  private readonly _endings = new Endings();

  constructor(
    client: SessionClient,
    rescue: Rescue | null = null,
    views: readonly ViewName[] = []
  ) {
    const { node, end } = surface('ddpviz-explorer');
    this.node = node;
    const state = new StateLine(client);
    const actions = new Actions(client, rescue);
    const switches = new SwitchColumn(client);
    const steps = new StepBar(client);
    this.first = new FigureView(client, views[0] ?? 'timeline');
    const others =
      views.length > 0
        ? views.slice(1).map(view => new FigureView(client, view))
        : [new ViewTabs(client)];
    node.append(
      state.node,
      element('div', { class: 'ddpviz-toolbar' }, actions.node, steps.node),
      element(
        'div',
        { class: 'ddpviz-columns' },
        element('div', { class: 'ddpviz-side' }, switches.node),
        element(
          'div',
          { class: 'ddpviz-main' },
          this.first.node,
          ...others.map(one => one.node)
        )
      )
    );
    this._endings.add(end, listenForKeys(node, client));
    for (const part of [state, actions, switches, steps, ...others]) {
      this._endings.add(() => {
        part.dispose();
      });
    }
    this._endings.add(() => {
      this.first.dispose();
    });
  }

  dispose(): void {
    this._endings.end();
    this.node.remove();
  }
}

/** One view with the state line and the step bar: what a panel of the lab shows. */
export class ViewPanel {
  readonly node: HTMLElement;

  private readonly _endings = new Endings();

  constructor(client: SessionClient, view: string) {
    const { node, end } = surface('ddpviz-view');
    this.node = node;
    const parts = [
      new StateLine(client),
      new StepBar(client),
      new FigureView(client, view)
    ];
    node.append(...parts.map(part => part.node));
    this._endings.add(end, listenForKeys(node, client));
    for (const part of parts) {
      this._endings.add(() => {
        part.dispose();
      });
    }
  }

  dispose(): void {
    this._endings.end();
    this.node.remove();
  }
}
