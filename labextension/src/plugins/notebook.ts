import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette, showErrorMessage } from '@jupyterlab/apputils';
import { IDefaultFileBrowser } from '@jupyterlab/filebrowser';
import { ILauncher } from '@jupyterlab/launcher';

import { ddpvizIcon } from '../icon';
import { placeNotebook } from '../lab/notebook';
import { CATEGORY, Command } from './commands';
import { IDdpSettings } from './settings';

/** A launcher card and a command that open a notebook ready to run, as the settings say. */
export const notebookPlugin: JupyterFrontEndPlugin<void> = {
  id: 'ddpviz:notebook',
  description:
    'Opens a new notebook that starts engines and shows the explorer.',
  autoStart: true,
  requires: [IDdpSettings],
  optional: [ICommandPalette, ILauncher, IDefaultFileBrowser],
  activate: (
    app: JupyterFrontEnd,
    settings: IDdpSettings,
    palette: ICommandPalette | null,
    launcher: ILauncher | null,
    browser: IDefaultFileBrowser | null
  ) => {
    app.commands.addCommand(Command.newNotebook, {
      label: args =>
        args['isPalette'] === true ? 'New DDP Notebook' : 'DDP session',
      caption: 'A notebook that starts engines and shows DDP live on them',
      icon: ddpvizIcon,
      describedBy: {
        args: {
          type: 'object',
          properties: { isPalette: { type: 'boolean' } }
        }
      },
      execute: async () => {
        try {
          const path = await placeNotebook(
            app.serviceManager.contents,
            browser?.model.path ?? '',
            settings.current
          );
          await app.commands.execute('docmanager:open', { path });
        } catch (error) {
          await showErrorMessage(
            'The notebook could not be made',
            error instanceof Error ? error : String(error)
          );
        }
      }
    });
    palette?.addItem({
      command: Command.newNotebook,
      category: CATEGORY,
      args: { isPalette: true }
    });
    launcher?.add({
      command: Command.newNotebook,
      category: 'Notebook',
      rank: 101
    });
  }
};
