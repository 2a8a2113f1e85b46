/** Ids of the extension's commands. */
export const CATEGORY = 'DDP';
export const Command = {
  openTour: 'ddpviz:open-tour',
  newNotebook: 'ddpviz:new-notebook',
  openPanel: 'ddpviz:open-panel',
  openDefaults: 'ddpviz:open-default-panels',
  showSidebar: 'ddpviz:show-sidebar',
  start: 'ddpviz:start',
  stop: 'ddpviz:stop',
  restart: 'ddpviz:restart',
  kill: 'ddpviz:kill',
  follow: 'ddpviz:toggle-follow',
  previousStep: 'ddpviz:previous-step',
  nextStep: 'ddpviz:next-step'
} as const;
