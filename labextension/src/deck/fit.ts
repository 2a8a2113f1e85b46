/** Figures as high as their slide has room for, with letters that a room can read. */

import { drawn, frame, plots } from './bokeh';
import { letters, widths } from './letters';
import type { Scaled } from './letters';
import type { Model } from './bokeh';

/** The slide whose letters are as large as a page's. */
const WIDTH_PX = 1020;
const HEIGHT_PX = 570;
const LEAST_LETTERS = 0.8;
const MOST_LETTERS = 3;
/** Letters may grow this much more than lanes do. */
const LETTERS_PER_LANE = 1.3;
/** Lower than this the lanes of a figure are not told apart: the slide scrolls instead. */
const LEAST = 0.5;
const LEAST_PRINTED = 0.25;
/** Higher than this, against its letters, a figure looks empty. */
const MOST_PER_LETTERS = 1.8;
/** Each pass moves legend and axes, which moves the room there is. */
const PASSES = 4;

interface Fitted {
  readonly holder: HTMLElement;
  readonly root: HTMLElement;
  readonly plot: Model;
  readonly letters: Scaled;
  readonly widths: Scaled;
  /** Height of the frame as it was drawn. */
  natural: number;
  setting: boolean;
}

let all: readonly Fitted[] = [];
let least = LEAST;

/** Resolves when every figure was drawn; from then on each follows the room it has. */
export async function figuresDrawn(): Promise<void> {
  const bokeh = await drawn();
  const found: Fitted[] = [];
  for (const { el, model } of bokeh.index.roots) {
    const holder = el.closest<HTMLElement>('.figure');
    const [plot] = plots(model);
    if (holder !== null && plot !== undefined) {
      found.push(follow(holder, el, model, plot));
    }
  }
  all = found;
}

/** All of them fitted, for paper also where they would rather scroll. */
export async function fitted(printing: boolean): Promise<void> {
  least = printing ? LEAST_PRINTED : LEAST;
  await Promise.all(all.map(fit));
  await frame();
}

function follow(
  holder: HTMLElement,
  root: HTMLElement,
  model: Model,
  plot: Model
): Fitted {
  const one: Fitted = {
    holder,
    root,
    plot,
    letters: letters(plot),
    widths: widths(model),
    natural: plot.frame_height ?? 0,
    setting: false
  };
  // Another step has another height.
  plot.properties['frame_height']?.change.connect(() => {
    if (!one.setting) {
      one.natural = plot.frame_height ?? one.natural;
      void fit(one);
    }
  });
  // Also when its slide, hidden until then, is shown.
  new ResizeObserver(() => {
    void fit(one);
  }).observe(holder);
  holder.addEventListener('scroll', () => {
    sayMore(holder);
  });
  return one;
}

async function fit(one: Fitted): Promise<void> {
  if (one.setting || one.holder.clientHeight === 0 || one.natural <= 0) {
    return;
  }
  one.setting = true;
  try {
    const wanted = Math.min(
      Math.max(
        Math.min(innerWidth / WIDTH_PX, innerHeight / HEIGHT_PX),
        LEAST_LETTERS
      ),
      MOST_LETTERS
    );
    one.widths.scale(wanted);
    let scale = wanted;
    for (let pass = 0; pass < PASSES; pass++) {
      const size = Math.min(wanted, scale * LETTERS_PER_LANE);
      one.letters.scale(Math.max(size, LEAST_LETTERS));
      one.plot.setv({ frame_height: Math.round(one.natural * scale) });
      await frame();
      await frame();
      const room = one.holder.clientHeight;
      const around =
        one.root.offsetHeight -
        (one.plot.inner_height ?? one.plot.frame_height ?? 0);
      const next = Math.min(
        Math.max((room - around - 1) / one.natural, least),
        MOST_PER_LETTERS * wanted
      );
      if (Math.abs(next - scale) * one.natural < 2) {
        break;
      }
      scale = next;
    }
    sayMore(one.holder);
  } finally {
    one.setting = false;
  }
}

/** That a figure goes on below, where no scrollbar may say so. */
function sayMore(holder: HTMLElement): void {
  const below = holder.scrollHeight - holder.clientHeight - holder.scrollTop;
  holder.classList.toggle('more', below > 4);
}
