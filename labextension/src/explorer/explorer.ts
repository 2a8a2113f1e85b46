import type { Rescue } from './actions';
import { Actions } from './actions';
import type { SessionClient } from './client';
import { ComparedNote } from './compared';
import { Comparisons } from './comparisons';
import { DemonstratedNote } from './demonstrated';
import { Demonstrations } from './demonstrations';
import { element } from './dom';
import { Endings } from './emitter';
import { FigureView } from './figure';
import { listenForKeys } from './keys';
import type { Demonstrated, ViewName } from './protocol';
import { reveal } from './reveal';
import { Slides } from './slides';
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
    const demonstrations = new Demonstrations(client);
    const comparisons = new Comparisons(client);
    const slides = new Slides(client);
    const steps = new StepBar(client);
    this.first = new FigureView(client, views[0] ?? 'timeline');
    const tabs = views.length > 0 ? null : new ViewTabs(client);
    const others =
      tabs === null
        ? views.slice(1).map(view => new FigureView(client, view))
        : [tabs];
    const added = new Added(client, [this.first.view, ...views]);
    const found = new DemonstratedNote(client.demonstrator);
    const compared = new ComparedNote(client.comparer);
    node.append(
      state.node,
      element(
        'div',
        { class: 'ddpviz-toolbar' },
        actions.node,
        element(
          'div',
          { class: 'ddpviz-row ddpviz-toggles' },
          demonstrations.toggle,
          comparisons.toggle,
          slides.toggle
        ),
        steps.node
      ),
      demonstrations.node,
      comparisons.node,
      slides.node,
      element(
        'div',
        { class: 'ddpviz-columns' },
        element('div', { class: 'ddpviz-side' }, switches.node),
        element(
          'div',
          { class: 'ddpviz-main' },
          compared.node,
          found.node,
          this.first.node,
          ...others.map(one => one.node),
          added.node
        )
      )
    );
    let settled = () => {};
    /** What shows a view, opened where it is not. */
    const opened = (view: string): HTMLElement => {
      const one = tabs?.open(view) === true ? tabs : added.show(view);
      const figures = [this.first, ...others];
      const there = figures.find(each => 'view' in each && each.view === view);
      return (one ?? there ?? this.first).node;
    };
    const see = (view: string) => {
      settled();
      settled = reveal(opened(view), node);
    };
    /** The sentences stand above the view that shows it, and can be seen. */
    const tell = ({ view }: Demonstrated) => {
      opened(view).before(found.node);
      if (document.activeElement === demonstrations.toggle) {
        found.node.focus({ preventScroll: true });
      }
      settled();
      settled = reveal(found.node, node);
    };
    if (client.demonstrator.found !== null) {
      tell(client.demonstrator.found);
    }
    this._endings.add(
      end,
      listenForKeys(node, client),
      client.demonstrator.shows.subscribe(tell),
      state.findings.wanted.subscribe(see),
      () => {
        settled();
      }
    );
    const parts = [
      state,
      actions,
      demonstrations,
      comparisons,
      slides,
      switches,
      steps,
      added,
      found,
      compared
    ];
    for (const part of [...parts, ...others]) {
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

/** A view that was not wanted at first, and that a demonstration is shown by. */
class Added {
  readonly node = element('div');

  private _figure: FigureView | null = null;

  /** `there`: views that are shown anyway. */
  constructor(
    private readonly _client: SessionClient,
    private readonly _there: readonly string[]
  ) {}

  /** Returns itself where it shows the view; null where that is there anyway. */
  show(view: string): this | null {
    if (this._there.includes(view)) {
      return null;
    }
    if (this._figure?.view !== view) {
      this.dispose();
      this._figure = new FigureView(this._client, view);
      this.node.replaceChildren(this._figure.node);
    }
    return this;
  }

  dispose(): void {
    this._figure?.dispose();
    this._figure = null;
    this.node.replaceChildren();
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
