import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette, showErrorMessage } from '@jupyterlab/apputils';
import { IDefaultFileBrowser } from '@jupyterlab/filebrowser';
import { ILauncher } from '@jupyterlab/launcher';

import { ddpvizIcon } from '../icon';
import { placeTour } from '../tour';
import { CATEGORY, Command } from './commands';

/** The command "Open the ddpviz Tour", in the palette and on a card of the launcher. */
export const tourPlugin: JupyterFrontEndPlugin<void> = {
  id: 'ddpviz:tour',
  description: 'Opens the tour of ddpviz, a notebook that records real DDP.',
  autoStart: true,
  optional: [ICommandPalette, ILauncher, IDefaultFileBrowser],
  activate: (
    app: JupyterFrontEnd,
    palette: ICommandPalette | null,
    launcher: ILauncher | null,
    browser: IDefaultFileBrowser | null
  ) => {
    app.commands.addCommand(Command.openTour, {
      label: args =>
        args['isPalette'] === true ? 'Open the ddpviz Tour' : 'DDP tour',
      caption: 'Record real DistributedDataParallel training and look at it',
      icon: ddpvizIcon,
      describedBy: {
        args: {
          type: 'object',
          properties: { isPalette: { type: 'boolean' } }
        }
      },
      execute: async () => {
        const folder = browser?.model.path ?? '';
        try {
          const path = await placeTour(app.serviceManager.contents, folder);
          await app.commands.execute('docmanager:open', { path });
        } catch (error) {
          await showErrorMessage(
            'The tour could not be opened',
            error instanceof Error ? error : String(error)
          );
        }
      }
    });
    palette?.addItem({
      command: Command.openTour,
      category: CATEGORY,
      args: { isPalette: true }
    });
    launcher?.add({
      command: Command.openTour,
      category: 'Notebook',
      rank: 100
    });
  }
};
