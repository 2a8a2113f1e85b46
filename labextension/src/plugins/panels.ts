import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ILabShell, ILayoutRestorer } from '@jupyterlab/application';
import { ICommandPalette, WidgetTracker } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { UUID } from '@lumino/coreutils';

import { ddpvizIcon } from '../icon';
import type { PanelArgs } from '../lab/panel';
import { DdpPanel } from '../lab/panel';
import { IDdpSessions } from '../lab/sessions';
import type { Settings } from '../lab/settings';
import { PANELS, PANEL_LABELS, isPanel } from '../lab/settings';
import { CATEGORY, Command } from './commands';
import { IDdpSettings } from './settings';

interface Where {
  ref?: string;
  mode?: 'split-right' | 'split-bottom' | 'tab-after';
}

const MODES: Readonly<Record<Settings['layout'], NonNullable<Where['mode']>>> =
  { beside: 'split-right', below: 'split-bottom', tabs: 'tab-after' };

/** Views of a session as tabs of the main area, found again after a reload. */
export const panelsPlugin: JupyterFrontEndPlugin<void> = {
  id: 'ddpviz:panels',
  description: 'Opens views of a DDP session as tabs of the main area.',
  autoStart: true,
  requires: [IDdpSessions, IDdpSettings],
  optional: [ILayoutRestorer, ICommandPalette, INotebookTracker, ILabShell],
  activate: (
    app: JupyterFrontEnd,
    sessions: IDdpSessions,
    settings: IDdpSettings,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    notebooks: INotebookTracker | null,
    shell: ILabShell | null
  ) => {
    if (shell === null) {
      return; // Notebook's page has room for one document
    }
    const tracker = new WidgetTracker<DdpPanel>({ namespace: 'ddpviz-panels' });

    const open = (args: PanelArgs, restoring: boolean): DdpPanel => {
      const known = tracker.find(
        one => one.args.view === args.view && one.args.path === args.path
      );
      if (known !== undefined) {
        known.take(args.session);
        app.shell.activateById(known.id);
        return known;
      }
      const panel = new DdpPanel(args, sessions);
      panel.moved.connect(one => {
        void tracker.save(one);
      });
      panel.id = `ddpviz-panel-${UUID.uuid4()}`;
      if (restoring) {
        app.shell.add(panel, 'main');
      } else {
        app.shell.add(panel, 'main', {
          mode: MODES[settings.current.layout],
          ...beside(args.path)
        });
      }
      void tracker.add(panel);
      app.shell.activateById(panel.id);
      return panel;
    };

    /** Beside the panels of that notebook, as one more tab; the first one beside the notebook. */
    const beside = (path: string): Where => {
      let last: DdpPanel | undefined;
      tracker.forEach(one => {
        if (one.args.path === path && one.isAttached) {
          last = one;
        }
      });
      if (last !== undefined) {
        return { ref: last.id, mode: 'tab-after' };
      }
      const notebook = notebooks?.find(one => one.context.path === path);
      return notebook === undefined ? {} : { ref: notebook.id };
    };

    app.commands.addCommand(Command.openPanel, {
      label: args =>
        isPanel(args['view'])
          ? `Open DDP ${PANEL_LABELS[args['view']]}`
          : 'Open a DDP Panel',
      caption: 'A view of the DDP session in focus, as a tab',
      icon: ddpvizIcon,
      describedBy: {
        args: {
          type: 'object',
          properties: {
            view: { type: 'string', enum: [...PANELS] },
            path: { type: 'string' },
            session: { type: ['string', 'null'] },
            restoring: { type: 'boolean' }
          }
        }
      },
      execute: args => {
        const view = isPanel(args['view']) ? args['view'] : 'explorer';
        const focus = sessions.focus;
        const current = notebooks?.currentWidget?.context.path;
        const path = text(args['path']) ?? focus?.link.path ?? current ?? '';
        const session =
          text(args['session']) ??
          (focus?.link.path === path ? focus.client.session : null);
        return open({ view, path, session }, args['restoring'] === true);
      }
    });
    app.commands.addCommand(Command.openDefaults, {
      label: 'Open the Default DDP Panels',
      caption: 'The panels that the settings name',
      icon: ddpvizIcon,
      describedBy: { args: { type: 'object', properties: {} } },
      execute: async () => {
        for (const view of settings.current.panels) {
          await app.commands.execute(Command.openPanel, { view });
        }
      }
    });
    for (const view of PANELS) {
      palette?.addItem({
        command: Command.openPanel,
        category: CATEGORY,
        args: { view }
      });
    }
    palette?.addItem({ command: Command.openDefaults, category: CATEGORY });

    void restorer?.restore(tracker, {
      command: Command.openPanel,
      args: panel => ({ ...panel.args, restoring: true }),
      name: panel => `${panel.args.view}:${panel.args.path}`
    });
  }
};

function text(value: unknown): string | null {
  return typeof value === 'string' ? value : null;
}
