/** What a deck asks of BokehJS, which the page has brought along. */

export interface Signal {
  connect(slot: () => void): boolean;
}

export interface Model {
  readonly type: string;
  readonly id: string;
  readonly name: string | null;
  readonly children?: readonly (Model | readonly [Model, ...unknown[]])[];
  readonly above?: readonly Model[];
  readonly below?: readonly Model[];
  readonly left?: readonly Model[];
  readonly right?: readonly Model[];
  readonly renderers?: readonly Model[];
  readonly glyph?: Model;
  readonly title?: Model | string | null;
  readonly text?: unknown;
  readonly properties: Readonly<Record<string, { change: Signal }>>;
  readonly frame_height?: number | null;
  readonly inner_height?: number;
  readonly value?: unknown;
  /** Of a button: the timer that it plays by. */
  readonly replay?: unknown;
  setv(values: Readonly<Record<string, unknown>>): void;
}

interface BokehDocument {
  readonly is_idle: boolean;
  readonly idle: Signal;
  roots(): readonly Model[];
}

export interface View {
  readonly el: HTMLElement;
  readonly shadow_el?: ShadowRoot;
  readonly child_views?: readonly View[];
  readonly model: Model;
}

interface Bokeh {
  readonly documents: readonly BokehDocument[];
  readonly index: { readonly roots: Iterable<View> };
}

declare global {
  interface Window {
    Bokeh?: Bokeh;
  }
}

/** The deck's document, as soon as all of it is drawn. */
export async function drawn(): Promise<Bokeh> {
  for (;;) {
    const bokeh = window.Bokeh;
    const made = bokeh?.documents[0];
    if (bokeh !== undefined && made !== undefined) {
      if (!made.is_idle) {
        await new Promise<void>(resolve => {
          made.idle.connect(resolve);
        });
      }
      return bokeh;
    }
    await frame();
  }
}

/** Until the browser paints again. */
export function frame(): Promise<void> {
  return new Promise(resolve => {
    requestAnimationFrame(() => {
      resolve();
    });
  });
}

/** The figures in a root, itself included. */
export function plots(root: Model): Model[] {
  return leaves(root).filter(isPlot);
}

/** What else is in a root. */
export function widgets(root: Model): Model[] {
  return leaves(root).filter(model => !isPlot(model));
}

function leaves(root: Model): Model[] {
  return root.children === undefined
    ? [root]
    : root.children.flatMap(child =>
        leaves('type' in child ? child : child[0])
      );
}

function isPlot(model: Model): boolean {
  return model.type === 'Figure' || model.type === 'Plot';
}

/** Text of a title, which is a string or a model that keeps it from being typeset. */
export function textOf(title: Model): string {
  const { text } = title;
  if (typeof text === 'string') {
    return text;
  }
  const inner = (text as { text?: unknown } | null)?.text;
  return typeof inner === 'string' ? inner : '';
}
