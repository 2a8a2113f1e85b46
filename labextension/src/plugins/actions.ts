import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import {
  Dialog,
  ICommandPalette,
  Notification,
  showDialog
} from '@jupyterlab/apputils';

import type { ActionName } from '../explorer/actions';
import { KILL, whyNot } from '../explorer/actions';
import type { StepMove } from '../explorer/keys';
import { moveStep } from '../explorer/keys';
import { messageOf } from '../explorer/transport';
import type { Found } from '../lab/sessions';
import { IDdpSessions } from '../lab/sessions';
import { CATEGORY, Command } from './commands';

const ACTIONS: readonly (readonly [string, ActionName, string])[] = [
  [Command.start, 'start', 'Start DDP Training'],
  [Command.stop, 'stop', 'Stop DDP Training'],
  [Command.restart, 'restart', 'Restart the DDP Engines'],
  [Command.kill, 'kill', 'Kill the DDP Engines']
];

/** Commands for the session in focus; one that is off says why in its caption. */
export const actionsPlugin: JupyterFrontEndPlugin<void> = {
  id: 'ddpviz:actions',
  description: 'Commands that start, stop, restart and kill DDP training.',
  autoStart: true,
  requires: [IDdpSessions],
  optional: [ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    sessions: IDdpSessions,
    palette: ICommandPalette | null
  ) => {
    const { commands } = app;
    const reason = (action: ActionName): string | null => {
      const found = sessions.focus;
      return found === null
        ? 'no DDP session runs'
        : whyNot(
            action,
            found.client.state,
            found.client.connection === 'connected',
            sessions.rescueOf(found.client)
          );
    };
    for (const [id, action, label] of ACTIONS) {
      commands.addCommand(id, {
        label,
        caption: () => reason(action) ?? `${label}, of the session in focus`,
        isEnabled: () => reason(action) === null,
        describedBy: { args: { type: 'object', properties: {} } },
        execute: async () => {
          const found = sessions.focus;
          if (found !== null) {
            await take(action, found, sessions);
          }
        }
      });
      palette?.addItem({ command: id, category: CATEGORY });
    }
    const moves: readonly (readonly [string, string, StepMove])[] = [
      [Command.follow, 'Follow the Newest DDP Step, or Stay at It', 'toggle'],
      [Command.previousStep, 'Previous DDP Step', 'previous'],
      [Command.nextStep, 'Next DDP Step', 'next']
    ];
    for (const [id, label, move] of moves) {
      commands.addCommand(id, {
        label,
        isEnabled: () => sessions.focus?.client.shownStep != null,
        describedBy: { args: { type: 'object', properties: {} } },
        execute: () => {
          if (sessions.focus !== null) {
            moveStep(sessions.focus.client, move);
          }
        }
      });
      palette?.addItem({ command: id, category: CATEGORY });
    }
    sessions.changed.connect(() => {
      commands.notifyCommandChanged();
    });
  }
};

async function take(
  action: ActionName,
  { client }: Found,
  sessions: IDdpSessions
): Promise<void> {
  try {
    if (action !== 'kill') {
      await client.act(action);
      return;
    }
    const answer = await showDialog({
      title: KILL.question,
      body: KILL.consequence,
      buttons: [
        Dialog.cancelButton({ label: KILL.no }),
        Dialog.warnButton({ label: KILL.yes })
      ]
    });
    if (answer.button.accept) {
      Notification.info(await sessions.rescueOf(client).kill());
    }
  } catch (error) {
    Notification.error(messageOf(error));
  }
}
