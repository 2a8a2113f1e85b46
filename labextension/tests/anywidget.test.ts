import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import anywidget from '../src/explorer/anywidget';
import type { WidgetModel } from '../src/explorer/model-transport';
import type { SessionState } from '../src/explorer/protocol';
import { settled, state } from './support';

type Receive = (content: unknown, buffers: DataView[]) => void;

const STILLS = 'a1b2c3';
const HIDES = `[data-ddpviz-stills="${STILLS}"]`;
const PICTURE = 'data:image/svg+xml;base64,PHN2Zy8+';

/** A model whose kernel has these sessions. */
function modelOf(
  traits: Record<string, unknown>,
  sessions: readonly SessionState[] = []
): WidgetModel {
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
      const result = action === 'sessions' ? sessions : {};
      queueMicrotask(() => {
        receive({ reply: request, ok: true, result }, []);
      });
    }
  };
}

let place: HTMLElement;
let end: (() => void) | undefined;

beforeEach(() => {
  vi.stubGlobal(
    'ResizeObserver',
    class {
      observe = vi.fn();
      disconnect = vi.fn();
    }
  );
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

describe('a widget whose session was closed', () => {
  it('shows no other one in its place', async () => {
    const other = state({ session: 's2-1', name: 'another' });
    await rendered(modelOf({ session: 's1-1' }, [other]));
    expect(place.textContent).toContain('This session was closed');
    expect(place.textContent).not.toContain('another');
    expect(place.querySelector('button')).toBe(null);
  });
});

describe('a widget that goes before the kernel answers', () => {
  it('leaves no client behind', async () => {
    const model = modelOf({ session: 's1-1' }, [state({ session: 's1-1' })]);
    const off = vi.spyOn(model, 'off');
    const finish = anywidget.render({ model, el: place });
    finish();
    await settled();
    expect(off).toHaveBeenCalled();
  });

  it('leaves it to the one that came in its place', async () => {
    const model = modelOf({ session: 's1-1' }, [state({ session: 's1-1' })]);
    const off = vi.spyOn(model, 'off');
    const finish = anywidget.render({ model, el: place });
    const after = document.createElement('div');
    end = anywidget.render({ model, el: after });
    finish();
    await settled();
    expect(off).not.toHaveBeenCalled();
    expect(after.textContent).toContain('convnet');
  });
});

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
