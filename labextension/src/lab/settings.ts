import type { ISettingRegistry } from '@jupyterlab/settingregistry';

import { VIEWS, VIEW_LABELS } from '../explorer/protocol';

export const SETTINGS_ID = 'ddpviz:live';

export type PanelName = (typeof VIEWS)[number] | 'explorer';
export const PANELS: readonly PanelName[] = ['explorer', ...VIEWS];

/** What the user set; the schema is schema/live.json. */
export interface Settings {
  engines: number;
  backend: 'auto' | 'gloo' | 'nccl';
  panels: readonly PanelName[];
  layout: 'beside' | 'below' | 'tabs';
  updatesPerSecond: number;
}

export const DEFAULTS: Settings = {
  engines: 2,
  backend: 'auto',
  panels: ['explorer'],
  layout: 'beside',
  updatesPerSecond: 10
};

export function read(settings: ISettingRegistry.ISettings): Settings {
  // The registry has checked it against the schema.
  return { ...DEFAULTS, ...(settings.composite as Partial<Settings>) };
}

export function isPanel(name: unknown): name is PanelName {
  return PANELS.some(panel => panel === name);
}

export const PANEL_LABELS: Readonly<Record<PanelName, string>> = {
  explorer: 'Explorer',
  ...VIEW_LABELS
};
