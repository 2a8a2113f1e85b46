const FRAME = 'ddpviz:frame';

/**
 * Tell the browser's performance tools what the figures hold from now on: a mark "ddpviz:frame"
 * with the frame's number and, by view, the step that it brought, in `detail`.
 *
 * Only the newest is kept, as a browser drops no mark by itself.
 */
export function markFrame(
  sequence: number,
  steps: readonly (readonly [string, number])[]
): void {
  performance.clearMarks(FRAME);
  performance.mark(FRAME, {
    detail: { sequence, steps: Object.fromEntries(steps) }
  });
}
