/** The letters of a figure and the widths of widgets, as they came times one factor. */

import { widgets } from './bokeh';
import type { Model } from './bokeh';

const SIZES = [
  'text_font_size',
  'label_text_font_size',
  'major_label_text_font_size',
  'axis_label_text_font_size'
] as const;
const KEYS = ['glyph_width', 'glyph_height'] as const;

type Sized = Model & Readonly<Record<string, unknown>>;
type Setting = (factor: number) => void;

export interface Scaled {
  scale(factor: number): void;
}

/** The letters of a plot. */
export function letters(plot: Model): Scaled {
  return scaled(modelsOf(plot).flatMap(model => settingsOf(model as Sized)));
}

/** The widths of the widgets of a root, whose letters are the page's. */
export function widths(root: Model): Scaled {
  return scaled(widgets(root).flatMap(model => widthOf(model as Sized)));
}

function scaled(settings: readonly Setting[]): Scaled {
  let last = 1;
  return {
    scale(factor) {
      if (Math.abs(factor - last) > 0.01) {
        last = factor;
        for (const set of settings) {
          set(factor);
        }
      }
    }
  };
}

function modelsOf(plot: Model): Model[] {
  const {
    above = [],
    below = [],
    left = [],
    right = [],
    renderers = []
  } = plot;
  const glyphs = renderers.flatMap(({ glyph }) => glyph ?? []);
  return [...above, ...below, ...left, ...right, ...glyphs];
}

function widthOf(widget: Sized): Setting[] {
  const px = widget['width'];
  return typeof px !== 'number'
    ? []
    : [
        factor => {
          widget.setv({ width: Math.round(px * factor) });
        }
      ];
}

function settingsOf(model: Sized): Setting[] {
  const found: Setting[] = [];
  for (const name of SIZES) {
    const px = pixels(model[name]);
    if (px !== null) {
      const isGlyph = typeof model[name] === 'object';
      found.push(factor => {
        const size = `${(px * factor).toFixed(1)}px`;
        model.setv({ [name]: isGlyph ? { value: size } : size });
      });
    }
  }
  for (const name of KEYS) {
    const px = model[name];
    if (model.type === 'Legend' && typeof px === 'number') {
      found.push(factor => {
        model.setv({ [name]: Math.round(px * factor) });
      });
    }
  }
  return found;
}

/** Of "11px", or of a glyph's value of that. */
function pixels(size: unknown): number | null {
  const text =
    typeof size === 'object' && size !== null && 'value' in size
      ? size.value
      : size;
  const found = typeof text === 'string' ? /^([\d.]+)px$/.exec(text) : null;
  return found?.[1] === undefined ? null : Number(found[1]);
}
