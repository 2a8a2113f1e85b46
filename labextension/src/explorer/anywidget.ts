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
  client: SessionClient;
  users: number;
}

/** One client for each model: a widget that is shown twice selects the same step in both. */
const clients = new WeakMap<WidgetModel, Promise<Shared>>();

async function connect(model: WidgetModel): Promise<Shared> {
  const transport = new ModelTransport(model);
  try {
    const { result } = await transport.request('sessions');
    const sessions = result as readonly SessionState[];
    const named = model.get('session');
    const state = sessions.find(one => one.session === named) ?? sessions[0];
    if (state === undefined) {
      throw new Error('The kernel has no session any more: make a new one.');
    }
    const client = new SessionClient(transport, state.session);
    client.learn(state);
    return { client, users: 0 };
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

  let connecting = clients.get(model);
  if (connecting === undefined) {
    connecting = connect(model);
    clients.set(model, connecting);
  }
  connecting.then(
    shared => {
      clearTimeout(patience);
      if (ended) {
        return;
      }
      shared.users += 1;
      const views = model.get('views');
      const explorer = new Explorer(
        shared.client,
        null,
        Array.isArray(views) ? views.filter(isView) : []
      );
      place.replaceChildren(explorer.node);
      hideStills(model, el);
      const endSnapshots = keepSnapshot(model, shared.client, explorer.first);
      finish = () => {
        end();
        endSnapshots();
        explorer.dispose();
        shared.users -= 1;
        if (shared.users === 0) {
          shared.client.dispose();
          clients.delete(model);
        }
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
  };
}

export default { render };
