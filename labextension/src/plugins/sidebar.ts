import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ILayoutRestorer } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';

import { IDdpSessions } from '../lab/sessions';
import { DdpSidebar } from '../lab/sidebar';
import { CATEGORY, Command } from './commands';

/** The sidebar *DDP*. */
export const sidebarPlugin: JupyterFrontEndPlugin<void> = {
  id: 'ddpviz:sidebar',
  description: 'The sidebar DDP: sessions, ranks, actions and switches.',
  autoStart: true,
  requires: [IDdpSessions],
  optional: [ILayoutRestorer, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    sessions: IDdpSessions,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null
  ) => {
    const sidebar = new DdpSidebar(sessions, {
      openPanel: (found, view) => {
        void app.commands.execute(Command.openPanel, {
          view,
          path: found.link.path,
          session: found.client.session
        });
      },
      openTour: () => {
        void app.commands.execute(Command.openTour);
      },
      newNotebook: () => {
        void app.commands.execute(Command.newNotebook);
      }
    });
    app.shell.add(sidebar, 'left', { rank: 700 });
    restorer?.add(sidebar, sidebar.id);
    app.commands.addCommand(Command.showSidebar, {
      label: 'Show the DDP Sidebar',
      caption: 'Sessions of all running kernels',
      describedBy: { args: { type: 'object', properties: {} } },
      execute: () => {
        app.shell.activateById(sidebar.id);
      }
    });
    palette?.addItem({ command: Command.showSidebar, category: CATEGORY });
  }
};
