/** Linked selection: what is tapped in one view is selected in all views of the session. */

import type { BokehModel } from './bokeh';

/** What is selected, by what it is and not by which row of which figure. */
export interface Selected {
  step?: number;
  bucket?: number;
  rank?: number;
}

const KEYS = ['step', 'bucket', 'rank'] as const;

type Data = Readonly<Record<string, unknown>>;

/** What the row stands for; null where it has none of the columns that link views. */
export function meaning(data: Data, row: number): Selected | null {
  const found: Selected = {};
  for (const key of KEYS) {
    const value = valueAt(data[key], row);
    if (value !== null && value >= 0) {
      found[key] = value;
    }
  }
  return Object.keys(found).length > 0 ? found : null;
}

/**
 * Rows of a source that stand for what is selected; null where the source cannot tell, because it
 * has none of the columns asked for.
 *
 * A column that the source lacks does not narrow it: the bucket selected on rank 1 is the whole
 * bucket in a plan, which has no ranks.
 */
export function rowsOf(data: Data, selected: Selected): number[] | null {
  const keys = KEYS.filter(
    key => selected[key] !== undefined && isColumn(data[key])
  );
  // A rank or a step alone would select half of a figure.
  if (!keys.includes('bucket')) {
    return null;
  }
  const rows: number[] = [];
  const length = lengthOf(data);
  for (let row = 0; row < length; row++) {
    if (
      keys.every(
        key => key === 'step' || valueAt(data[key], row) === selected[key]
      )
    ) {
      rows.push(row);
    }
  }
  return rows;
}

/** Select in a source what `selected` means there; nothing else stays selected. */
export function mark(source: BokehModel, selected: Selected): void {
  const rows = rowsOf(source.data ?? {}, selected) ?? [];
  const before = source.selected?.indices ?? [];
  if (
    rows.length !== before.length ||
    rows.some((row, place) => row !== before[place])
  ) {
    const selection = source.selected as unknown as BokehModel | undefined;
    selection?.setv({ indices: rows });
  }
}

function isColumn(column: unknown): column is ArrayLike<unknown> {
  return Array.isArray(column) || ArrayBuffer.isView(column);
}

function valueAt(column: unknown, row: number): number | null {
  const value = isColumn(column) ? column[row] : undefined;
  return typeof value === 'number' && Number.isFinite(value) ? value : null;
}

/** A text of a source's row, "" where it has none. */
export function textAt(
  data: Data | undefined,
  name: string,
  row: number
): string {
  const column = data?.[name];
  const value: unknown = isColumn(column) ? column[row] : undefined;
  return typeof value === 'string' ? value : '';
}

function lengthOf(data: Data): number {
  const [first] = Object.values(data);
  return isColumn(first) ? first.length : 0;
}
