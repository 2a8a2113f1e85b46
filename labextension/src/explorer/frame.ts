import type { Json, PackedColumn, PackedView, Reading } from './protocol';

export type Column = Float64Array | readonly Json[];
export type Columns = Record<string, Column>;

export interface ViewUpdate {
  structure: number;
  step: number;
  title: string;
  facts: readonly string[];
  readings: readonly Reading[];
  properties: Readonly<Record<string, Readonly<Record<string, Json>>>>;
  sources: Readonly<Record<string, Columns>>;
}

const FLOAT_BYTES = 8;

/**
 * The view's update with its columns taken out of the frame's buffer.
 *
 * A column is [offset in bytes, count] of little-endian float64, or its values. A column of two
 * numbers as values cannot be told from a packed one, so numbers always come packed. Throws Error
 * where a column lies outside the buffer.
 */
export function unpack(packed: PackedView, buffer: DataView): ViewUpdate {
  const sources: Record<string, Columns> = {};
  for (const [name, columns] of Object.entries(packed.sources ?? {})) {
    const unpacked: Columns = {};
    for (const [column, values] of Object.entries(columns)) {
      unpacked[column] = isPacked(values)
        ? floats(buffer, values[0], values[1], `${name}.${column}`)
        : values;
    }
    sources[name] = unpacked;
  }
  return {
    structure: packed.structure,
    step: packed.step,
    title: packed.title,
    facts: packed.facts ?? [],
    readings: packed.readings ?? [],
    properties: packed.properties ?? {},
    sources
  };
}

function isPacked(column: PackedColumn): column is readonly [number, number] {
  return (
    column.length === 2 &&
    typeof column[0] === 'number' &&
    typeof column[1] === 'number'
  );
}

function floats(
  buffer: DataView,
  offset: number,
  count: number,
  name: string
): Float64Array {
  const bytes = count * FLOAT_BYTES;
  if (offset < 0 || count < 0 || offset + bytes > buffer.byteLength) {
    throw new Error(
      `Found the column ${name} at byte ${String(offset)} with ${String(count)} numbers, ` +
        `expected it inside the frame's ${String(buffer.byteLength)} bytes.`
    );
  }
  // Copied: the frame's buffer starts anywhere, and is not to be kept alive by one column.
  const start = buffer.byteOffset + offset;
  const copy = buffer.buffer.slice(start, start + bytes);
  return new Float64Array(copy);
}
