import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { IStatusBar } from '@jupyterlab/statusbar';

import { IDdpSessions } from '../lab/sessions';
import { DdpStatus } from '../lab/status';
import { Command } from './commands';

/** The status bar's item: steps per second, exposed communication, health. */
export const statusPlugin: JupyterFrontEndPlugin<void> = {
  id: 'ddpviz:status',
  description: 'Shows the DDP session in focus in the status bar.',
  autoStart: true,
  requires: [IDdpSessions],
  optional: [IStatusBar],
  activate: (
    app: JupyterFrontEnd,
    sessions: IDdpSessions,
    statusBar: IStatusBar | null
  ) => {
    if (statusBar === null) {
      return; // Notebook has none
    }
    const item = new DdpStatus(sessions, () => {
      void app.commands.execute(Command.showSidebar);
    });
    statusBar.registerStatusItem('ddpviz:status', {
      item,
      align: 'left',
      rank: 50,
      isActive: () => sessions.focus !== null,
      activeStateChanged: sessions.changed
    });
  }
};
