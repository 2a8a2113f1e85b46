import { PathExt } from '@jupyterlab/coreutils';
import type { Contents } from '@jupyterlab/services';
import { ServerConnection } from '@jupyterlab/services';

import notebooks from './notebooks.json';

const TOUR_NAME = 'tour.ipynb';

/**
 * Make sure that `folder` has the tour and the notebooks that it points to, and return the tour's
 * path there.
 *
 * One that is there already is left as it is: its reader may have changed it.
 */
export async function placeTour(
  contents: Contents.IManager,
  folder: string
): Promise<string> {
  for (const [name, content] of Object.entries(notebooks)) {
    const path = PathExt.join(folder, name);
    if (!(await exists(contents, path))) {
      await contents.save(path, {
        type: 'notebook',
        format: 'json',
        content
      });
    }
  }
  return PathExt.join(folder, TOUR_NAME);
}

async function exists(
  contents: Contents.IManager,
  path: string
): Promise<boolean> {
  try {
    await contents.get(path, { content: false });
    return true;
  } catch (error) {
    if (
      error instanceof ServerConnection.ResponseError &&
      error.response.status === 404
    ) {
      return false;
    }
    throw error;
  }
}
