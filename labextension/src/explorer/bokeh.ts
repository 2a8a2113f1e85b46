/** BokehJS of the kernel's own version, kept apart from any other Bokeh of the page. */

import { withoutCssValues } from './css-values';
import type { Json } from './protocol';
import { measureOnPaintedCanvas } from './text-width';

export interface BokehSelection {
  indices: readonly number[];
}

export interface BokehModel {
  readonly id: string;
  readonly document: BokehDocument | null;
  data?: Readonly<Record<string, unknown>>;
  selected?: BokehSelection;
  /** Of a range. */
  start?: number;
  end?: number;
  /** Of a plot: what stands above its frame. */
  above?: readonly BokehModel[];
  items?: readonly unknown[];
  setv(values: Readonly<Record<string, unknown>>): void;
}

export interface BokehDocument {
  get_model_by_id(id: string): BokehModel | null;
  apply_json_patch(patch: { events: readonly Json[] }): void;
  on_change(
    callback: (event: { model?: BokehModel; attr?: string }) => void
  ): void;
  clear(): void;
}

export interface BokehView {
  readonly model: BokehModel;
  export?(
    type: 'png',
    hidpi?: boolean
  ): { canvas: HTMLCanvasElement; to_blob(): Promise<Blob> };
  invalidate_layout?(): void;
}

export interface BokehViews extends Iterable<BokehView> {
  clear(): void;
}

export interface BokehRoot {
  readonly version: string;
  readonly documents: BokehDocument[];
  /** One of its modules; throws where it has none of that name. */
  require?(name: string): unknown;
  readonly embed: {
    embed_item(item: object, target: HTMLElement): Promise<BokehViews>;
  };
}

interface Page {
  /** BokehJS by version, one for the page: the lab and every widget share it. */
  ddpvizBokeh?: Record<string, Promise<BokehRoot>>;
}

/** BokehJS of that version, from `fetch` (its source) where the page has none from us yet. */
export function bokehOf(
  version: string,
  fetch: () => Promise<string>
): Promise<BokehRoot> {
  const loaded = ((globalThis as Page).ddpvizBokeh ??= {});
  const known = loaded[version];
  if (known !== undefined) {
    return known;
  }
  const loading = fetch().then(source => evaluate(source, version));
  loaded[version] = loading;
  loading.catch(() => {
    // Not kept, so that the next figure tries again. Nothing else is under a version's name.
    // eslint-disable-next-line @typescript-eslint/no-dynamic-delete
    delete loaded[version];
  });
  return loading;
}

/**
 * Evaluate BokehJS with a root object of its own.
 *
 * Its files end in `(this, function() {…})` and hang themselves on `this.Bokeh`. At the page's top
 * that is `window.Bokeh`, which output_notebook() of any notebook shares and where the first one
 * wins: another notebook would then be drawn by our version, or ours by its.
 */
export function evaluate(source: string, version: string): BokehRoot {
  const root: { Bokeh?: BokehRoot } = {};
  const quiet = source.replace(/^\/\/# sourceMappingURL=.*$/gm, '');
  // eslint-disable-next-line @typescript-eslint/no-implied-eval
  new Function(quiet).call(root);
  if (root.Bokeh === undefined) {
    throw new Error(
      'The kernel sent something that is not BokehJS: restart the kernel.'
    );
  }
  if (root.Bokeh.version !== version) {
    throw new Error(
      `The kernel sent BokehJS ${root.Bokeh.version} for figures of Bokeh ${version}: restart it.`
    );
  }
  try {
    measureOnPaintedCanvas(root.Bokeh.require?.('core/graphics'));
    withoutCssValues(root.Bokeh.require?.('core/visuals/visual'));
  } catch {
    // Another version has other modules: it then paints and measures as it does by itself.
  }
  return root.Bokeh;
}
