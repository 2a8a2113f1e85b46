import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { IConsoleTracker } from '@jupyterlab/console';
import { INotebookTracker } from '@jupyterlab/notebook';

import { ServerPart } from '../lab/server';
import { DdpSessions, IDdpSessions } from '../lab/sessions';
import { IDdpSettings } from './settings';

/** Finds the sessions of all running kernels. */
export const sessionsPlugin: JupyterFrontEndPlugin<IDdpSessions> = {
  id: 'ddpviz:sessions',
  description: 'Finds the DDP sessions of all running kernels.',
  autoStart: true,
  requires: [IDdpSettings],
  optional: [INotebookTracker, IConsoleTracker],
  provides: IDdpSessions,
  activate: (
    app: JupyterFrontEnd,
    settings: IDdpSettings,
    notebooks: INotebookTracker | null,
    consoles: IConsoleTracker | null
  ) => {
    const server = new ServerPart(app.serviceManager.serverSettings);
    const sessions = new DdpSessions(
      app.serviceManager,
      server,
      notebooks,
      consoles
    );
    sessions.setRate(settings.current.updatesPerSecond);
    settings.changed.connect((_, now) => {
      sessions.setRate(now.updatesPerSecond);
    });
    return sessions;
  }
};
