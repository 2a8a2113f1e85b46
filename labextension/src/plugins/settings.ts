import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { Token } from '@lumino/coreutils';
import type { ISignal } from '@lumino/signaling';
import { Signal } from '@lumino/signaling';

import type { Settings } from '../lab/settings';
import { DEFAULTS, SETTINGS_ID, read } from '../lab/settings';

export interface IDdpSettings {
  readonly current: Settings;
  readonly changed: ISignal<IDdpSettings, Settings>;
}

export const IDdpSettings = new Token<IDdpSettings>(
  'ddpviz:IDdpSettings',
  'What the user set for DDP.'
);

class LiveSettings implements IDdpSettings {
  current: Settings = DEFAULTS;
  readonly changed: Signal<IDdpSettings, Settings> = new Signal(this);

  take(settings: ISettingRegistry.ISettings): void {
    this.current = read(settings);
    this.changed.emit(this.current);
  }
}

/** Settings, with their schema; the defaults hold where there is no registry. */
export const settingsPlugin: JupyterFrontEndPlugin<IDdpSettings> = {
  id: SETTINGS_ID,
  description: 'Settings of the DDP panels.',
  autoStart: true,
  optional: [ISettingRegistry],
  provides: IDdpSettings,
  activate: (_: JupyterFrontEnd, registry: ISettingRegistry | null) => {
    const live = new LiveSettings();
    registry?.load(SETTINGS_ID).then(
      settings => {
        live.take(settings);
        settings.changed.connect(now => {
          live.take(now);
        });
      },
      (error: unknown) => {
        console.warn('The settings of DDP could not be read.', error);
      }
    );
    return live;
  }
};
