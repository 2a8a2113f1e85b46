/** Reads a property of a visual from the style sheets of a figure; "" for none. */
type CssValue = (name: string) => string;

/**
 * Have BokehJS not look for its figures' colours and fonts in style sheets.
 *
 * It asks for the computed value of each `--bk-…` property at each paint, and after each change of
 * the page that has the browser resolve all styles anew: two fifths of a paint's script, by a profile (3.9).
 * No style sheet of ours, or of JupyterLab, has such properties; this is BokehJS's own copy of the
 * explorer, so figures of a user's cells keep theirs.
 */
export function withoutCssValues(visual: unknown): void {
  const prototype = prototypeOf(visual);
  if (prototype !== null) {
    prototype._get_css_value = () => '';
  }
}

function prototypeOf(module: unknown): { _get_css_value: CssValue } | null {
  const found: unknown = (
    module as { VisualProperties?: { prototype?: unknown } } | undefined
  )?.VisualProperties?.prototype;
  return hasCssValue(found) ? found : null;
}

function hasCssValue(value: unknown): value is { _get_css_value: CssValue } {
  return (
    typeof value === 'object' &&
    value !== null &&
    typeof Reflect.get(value, '_get_css_value') === 'function'
  );
}
