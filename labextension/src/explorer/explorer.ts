import type { Rescue } from './actions';
import { Actions } from './actions';
import type { SessionClient } from './client';
import { element } from './dom';
import { Endings } from './emitter';
import { FigureView } from './figure';
import { StateLine } from './stateline';
import { StepBar } from './steps';
import { SwitchColumn } from './switches';
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
 * steps over time and the bucket plan.
 */
export class Explorer {
  readonly node: HTMLElement;
  readonly timeline: FigureView;

  private readonly _endings = new Endings();

  constructor(client: SessionClient, rescue: Rescue | null = null) {
    const { node, end } = surface('ddpviz-explorer');
    this.node = node;
    const state = new StateLine(client);
    const actions = new Actions(client, rescue);
    const switches = new SwitchColumn(client);
    const steps = new StepBar(client);
    this.timeline = new FigureView(client, 'timeline');
    const history = new FigureView(client, 'steps');
    const plan = new FigureView(client, 'plan');
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
          this.timeline.node,
          element('div', { class: 'ddpviz-multiples' }, history.node, plan.node)
        )
      )
    );
    this._endings.add(end);
    for (const part of [state, actions, switches, steps, history, plan]) {
      this._endings.add(() => {
        part.dispose();
      });
    }
    this._endings.add(() => {
      this.timeline.dispose();
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
    this._endings.add(end);
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
