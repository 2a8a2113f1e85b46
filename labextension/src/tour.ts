import { PathExt } from '@jupyterlab/coreutils';
import type { Contents } from '@jupyterlab/services';
import { ServerConnection } from '@jupyterlab/services';

import tour from './tour.json';

const TOUR_NAME = 'tour.ipynb';

/**
 * Make sure that `folder` has the tour, and return its path there.
 *
 * A tour that is there already is left as it is: its reader may have changed it.
 */
export async function placeTour(
  contents: Contents.IManager,
  folder: string
): Promise<string> {
  const path = PathExt.join(folder, TOUR_NAME);
  if (!(await exists(contents, path))) {
    await contents.save(path, {
      type: 'notebook',
      format: 'json',
      content: tour
    });
  }
  return path;
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
