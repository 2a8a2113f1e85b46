import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import anywidget from '../src/explorer/anywidget';
import type { WidgetModel } from '../src/explorer/model-transport';
import { settled } from './support';

type Receive = (content: unknown, buffers: DataView[]) => void;

const STILLS = 'a1b2c3';
const HIDES = `[data-ddpviz-stills="${STILLS}"]`;
const PICTURE = 'data:image/svg+xml;base64,PHN2Zy8+';

/** A model whose kernel has no session any more. */
function modelOf(traits: Record<string, unknown>): WidgetModel {
  let receive: Receive = () => undefined;
  return {
    get: name => traits[name],
    set: (name, value) => {
      traits[name] = value;
    },
    save_changes: () => undefined,
    on: (_, callback) => {
      receive = callback as Receive;
    },
    off: () => undefined,
    send: content => {
      const { request, action } = content as {
        request: number;
        action: string;
      };
      const result = action === 'sessions' ? [] : {};
      queueMicrotask(() => {
        receive({ reply: request, ok: true, result }, []);
      });
    }
  };
}

let place: HTMLElement;
let end: (() => void) | undefined;

beforeEach(() => {
  vi.stubGlobal('matchMedia', () => ({
    matches: false,
    addEventListener: () => undefined,
    removeEventListener: () => undefined
  }));
  place = document.createElement('div');
  document.body.append(place);
});

afterEach(() => {
  end?.();
  place.remove();
  vi.unstubAllGlobals();
});

async function rendered(model: WidgetModel): Promise<string> {
  end = anywidget.render({ model, el: place });
  await settled();
  return [...place.querySelectorAll('style')]
    .map(style => style.textContent)
    .join('\n');
}

describe('stills beside the widget', () => {
  it('are hidden by the picture that the model keeps', async () => {
    const traits = { session: 's1-1', stills: STILLS, snapshot: PICTURE };
    expect(await rendered(modelOf(traits))).toContain(HIDES);
    expect(place.querySelector('img')?.src).toBe(PICTURE);
  });

  it('stay where there is nothing else to see', async () => {
    const model = modelOf({ session: 's1-1', stills: STILLS });
    expect(await rendered(model)).not.toContain(HIDES);
    expect(place.textContent).toContain('no session any more');
  });

  it('are named by nothing that is markup', async () => {
    const stills = '"] { } </style><b>';
    const model = modelOf({ session: 's1-1', stills, snapshot: PICTURE });
    expect(await rendered(model)).not.toContain(stills);
  });
});
