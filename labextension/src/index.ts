import { actionsPlugin } from './plugins/actions';
import { notebookPlugin } from './plugins/notebook';
import { panelsPlugin } from './plugins/panels';
import { sessionsPlugin } from './plugins/sessions';
import { settingsPlugin } from './plugins/settings';
import { sidebarPlugin } from './plugins/sidebar';
import { statusPlugin } from './plugins/status';
import { tourPlugin } from './plugins/tour';

export default [
  tourPlugin,
  settingsPlugin,
  sessionsPlugin,
  notebookPlugin,
  panelsPlugin,
  sidebarPlugin,
  actionsPlugin,
  statusPlugin
];
