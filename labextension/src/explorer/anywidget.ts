/** The explorer as an anywidget: a cell's output in JupyterLab, notebook, VS Code and Colab. */

import css from '../../style/explorer.css';
import { SessionClient } from './client';
import { element } from './dom';
import { Explorer, surface } from './explorer';
import { ModelTransport } from './model-transport';
import type { WidgetModel } from './model-transport';
import type { SessionState } from './protocol';
import { isView } from './protocol';
import { hasPicture, keepSnapshot, lastPicture } from './snapshot';

/** Until it is taken that nobody answers, and the saved picture is shown. */
const PATIENCE_MS = 3000;

interface Shared {
  readonly client: Promise<SessionClient>;
  users: number;
}

/** One client for each model: a widget that is shown twice selects the same step in both. */
const clients = new WeakMap<WidgetModel, Shared>();

async function connect(model: WidgetModel): Promise<SessionClient> {
  const transport = new ModelTransport(model);
  try {
    const { result } = await transport.request('sessions');
    const sessions = result as readonly SessionState[];
    const named = model.get('session');
    // Never another one in its place: its buttons would steer that.
    const state = sessions.find(one => one.session === named);
    if (state === undefined) {
      throw new Error(
        sessions.length === 0
          ? 'The kernel has no session any more: make a new one.'
          : 'This session was closed: run the cell of one that is there.'
      );
    }
    const client = new SessionClient(transport, state.session);
    client.learn(state);
    return client;
  } catch (error) {
    transport.dispose();
    clients.delete(model);
    throw error;
  }
}

/** The kernel leaves stills beside the widget, for where it cannot be drawn: here it is. */
function hideStills(model: WidgetModel, el: HTMLElement): void {
  const mark = model.get('stills');
  if (typeof mark === 'string' && /^\w+$/.test(mark)) {
    const rule = `[data-ddpviz-stills="${mark}"] { display: none }`;
    el.append(element('style', {}, rule));
  }
}

function render({
  model,
  el
}: {
  model: WidgetModel;
  el: HTMLElement;
}): () => void {
  el.append(element('style', {}, css));
  const { node: place, end } = surface('ddpviz-cell');
  el.append(place);
  let ended = false;
  let finish = end;

  const showLast = (error?: unknown) => {
    place.replaceChildren(lastPicture(model, error));
    if (hasPicture(model)) {
      hideStills(model, el);
    }
  };
  const patience = setTimeout(showLast, PATIENCE_MS);

  const shared = clients.get(model) ?? { client: connect(model), users: 0 };
  clients.set(model, shared);
  shared.users += 1;
  /** The last user takes the client along. */
  const leave = () => {
    shared.users -= 1;
    if (shared.users === 0) {
      if (clients.get(model) === shared) {
        clients.delete(model);
      }
      shared.client.then(
        client => {
          client.dispose();
        },
        () => undefined
      );
    }
  };
  shared.client.then(
    client => {
      clearTimeout(patience);
      if (ended) {
        return;
      }
      const views = model.get('views');
      const explorer = new Explorer(
        client,
        null,
        Array.isArray(views) ? views.filter(isView) : []
      );
      place.replaceChildren(explorer.node);
      hideStills(model, el);
      const endSnapshots = keepSnapshot(model, client, explorer.first);
      finish = () => {
        end();
        endSnapshots();
        explorer.dispose();
      };
    },
    (error: unknown) => {
      clearTimeout(patience);
      showLast(error);
    }
  );
  return () => {
    ended = true;
    clearTimeout(patience);
    finish();
    leave();
  };
}

export default { render };
