/** The last picture of the timeline, kept in the notebook for when no kernel answers. */

import type { SessionClient } from './client';
import { element } from './dom';
import type { FigureView } from './figure';
import { age } from './format';
import type { WidgetModel } from './model-transport';
import type { SessionState } from './protocol';
import { facts } from './stateline';
import { messageOf } from './transport';

const EVERY_MS = 10_000;

type Kept = SessionState & { readonly at: number };

/** Send a picture to the model now and then, while there is something new; returns the end. */
export function keepSnapshot(
  model: WidgetModel,
  client: SessionClient,
  figure: FigureView
): () => void {
  if (typeof model.get('snapshot') !== 'string') {
    return () => {
      // The kernel's side keeps none.
    };
  }
  let keptStep = -1;
  let busy = false;
  const keep = async () => {
    const state = client.state;
    if (
      busy ||
      state === null ||
      state.step === keptStep ||
      figure.width_px === 0
    ) {
      return;
    }
    busy = true;
    try {
      const picture = await figure.picture();
      if (picture !== null) {
        model.set('snapshot', await dataUrl(picture));
        model.set('snapshot_state', { ...state, at: Date.now() });
        model.save_changes();
        keptStep = state.step;
      }
    } finally {
      busy = false;
    }
  };
  const timer = setInterval(() => {
    if (client.connection === 'connected') {
      void keep();
    }
  }, EVERY_MS);
  return () => {
    clearInterval(timer);
  };
}

function pictureOf(model: WidgetModel): string | null {
  const picture = model.get('snapshot');
  return typeof picture === 'string' && picture.startsWith('data:image/')
    ? picture
    : null;
}

/** Whether a picture was kept. */
export function hasPicture(model: WidgetModel): boolean {
  return pictureOf(model) !== null;
}

/** The picture that was kept, greyed, with its age; or what to do where there is none. */
export function lastPicture(model: WidgetModel, error?: unknown): HTMLElement {
  const said = error === undefined ? 'No kernel answers.' : messageOf(error);
  const state = model.get('snapshot_state') as Kept | null | undefined;
  const picture = pictureOf(model);
  if (picture === null) {
    return element(
      'p',
      { class: 'ddpviz-figure-note' },
      `${said} Run the cell again to see its session live.`
    );
  }
  const when =
    typeof state?.at === 'number'
      ? `This is from ${age((Date.now() - state.at) / 1000)} ago.`
      : 'This is the last picture of it.';
  const line = state?.session === undefined ? '' : facts(state).join(' · ');
  return element(
    'figure',
    { class: 'ddpviz-last' },
    element(
      'figcaption',
      { class: 'ddpviz-figure-note' },
      `${said} ${when} Run the cell again to go on.`,
      line === '' ? null : element('div', { class: 'ddpviz-facts' }, line)
    ),
    element('img', {
      attributes: { src: picture, alt: state?.title ?? 'timeline' }
    })
  );
}

function dataUrl(blob: Blob): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => {
      resolve(reader.result as string);
    };
    reader.onerror = () => {
      reject(new Error('The picture could not be read.'));
    };
    reader.readAsDataURL(blob);
  });
}
