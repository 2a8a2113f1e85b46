import type { INotebookContent } from '@jupyterlab/nbformat';
import type { Contents } from '@jupyterlab/services';

import type { Settings } from './settings';

/** A notebook whose cells start engines, load a workload and show the explorer. */
export function readyNotebook(settings: Settings): INotebookContent {
  const backend =
    settings.backend === 'auto' ? '' : `, backend="${settings.backend}"`;
  const cells = [
    markdown(
      '# DDP\n\nRun all cells: engines start, and the explorer shows what DDP does on them. ' +
        'The sidebar *DDP* has the same switches.'
    ),
    code(
      'import ddpviz\n\n' +
        `session = ddpviz.Session(engines=${String(settings.engines)}${backend})`
    ),
    code('session.load("convnet", bucket_cap_mb=1);'),
    code('session.start()\nsession.explorer()'),
    markdown(
      'Training goes on until you press Stop, or call `session.stop()`; `session.close()` ends ' +
        'the engines, and so does the end of the kernel.'
    )
  ];
  return {
    cells,
    metadata: {
      kernelspec: { display_name: 'Python 3', name: 'python3' },
      language_info: { name: 'python' }
    },
    nbformat: 4,
    nbformat_minor: 5
  };
}

/** Save it under a new name in `folder`, and return its path. */
export async function placeNotebook(
  contents: Contents.IManager,
  folder: string,
  settings: Settings
): Promise<string> {
  const made = await contents.newUntitled({ path: folder, type: 'notebook' });
  await contents.save(made.path, {
    type: 'notebook',
    format: 'json',
    content: readyNotebook(settings)
  });
  return made.path;
}

let cells = 0;

function code(source: string) {
  return {
    cell_type: 'code',
    execution_count: null,
    metadata: {},
    outputs: [],
    ...cell(source)
  };
}

function markdown(source: string) {
  return { cell_type: 'markdown', metadata: {}, ...cell(source) };
}

function cell(source: string) {
  cells += 1;
  return { id: `ddpviz-${String(cells)}`, source };
}
