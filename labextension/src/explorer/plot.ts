/** A plot made to fit where it stands, and kept where the user zoomed it to. */

import type { BokehDocument, BokehModel } from './bokeh';
import type { Json } from './protocol';

type Parts = Readonly<Record<string, string>> | undefined;
type Properties = Readonly<Record<string, Readonly<Record<string, Json>>>>;

/** Room that the vertical axis and its labels take from a legend. */
const AXIS_PX = 130;

/**
 * Fit the plot into the width: the legend wraps, and no least width pushes the plot out of a
 * narrow panel. Its title is ours, as text that wraps and can be read out.
 */
export function arrange(
  document: BokehDocument,
  parts: Parts,
  width_px: number
): void {
  const model = (name: string): BokehModel | null => {
    const id = parts?.[name];
    return id === undefined ? null : document.get_model_by_id(id);
  };
  model('title')?.setv({ visible: false });
  const plot = model('plot');
  plot?.setv({ min_width: 200 });
  for (const above of plot?.above ?? []) {
    if (above.items !== undefined) {
      const most = Math.max(140, Math.round((width_px - AXIS_PX) / 20) * 20);
      above.setv({
        stylesheets: [
          `:host { max-width: ${String(most)}px }
           .bk-grid { display: flex; flex-wrap: wrap; gap: 2px 10px; width: auto }`
        ]
      });
    }
  }
}

/** Notices that the user zoomed or panned, and leaves the range as they have it. */
export class Zoom {
  private readonly _range: BokehModel | null;
  private _start: number | undefined;
  private _end: number | undefined;

  constructor(
    document: BokehDocument,
    private readonly _id: string | undefined
  ) {
    this._range = _id === undefined ? null : document.get_model_by_id(_id);
    this._start = this._range?.start;
    this._end = this._range?.end;
  }

  /** The properties without what would undo the user's zoom. */
  keep(properties: Properties): Properties {
    const range = this._range;
    const mine = this._id === undefined ? undefined : properties[this._id];
    if (range === null || mine === undefined || this._id === undefined) {
      return properties;
    }
    const zoomed = range.start !== this._start || range.end !== this._end;
    const { start, end, ...others } = mine;
    this._start = zoomed ? this._start : numberOr(start, this._start);
    this._end = zoomed ? this._end : numberOr(end, this._end);
    if (!zoomed) {
      return properties;
    }
    // Reset goes to where the range would be, and from then on it is followed again.
    if (
      range.start === others['reset_start'] &&
      range.end === others['reset_end']
    ) {
      this._start = range.start;
      this._end = range.end;
    }
    return { ...properties, [this._id]: others };
  }
}

function numberOr(
  value: Json | undefined,
  other: number | undefined
): number | undefined {
  return typeof value === 'number' ? value : other;
}
