import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ILabShell, ILayoutRestorer } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';

import { IDdpSessions } from '../lab/sessions';
import { DdpSidebar } from '../lab/sidebar';
import { CATEGORY, Command } from './commands';

const NO_PANELS =
  'Panels open in JupyterLab: this page has room for one document';

/** The sidebar *DDP*. */
export const sidebarPlugin: JupyterFrontEndPlugin<void> = {
  id: 'ddpviz:sidebar',
  description: 'The sidebar DDP: sessions, ranks, actions and switches.',
  autoStart: true,
  requires: [IDdpSessions],
  optional: [ILayoutRestorer, ICommandPalette, ILabShell],
  activate: (
    app: JupyterFrontEnd,
    sessions: IDdpSessions,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    shell: ILabShell | null
  ) => {
    const sidebar = new DdpSidebar(sessions, {
      noPanels: shell === null ? NO_PANELS : null,
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
