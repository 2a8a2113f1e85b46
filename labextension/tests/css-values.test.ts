import { describe, expect, it } from 'vitest';

import { withoutCssValues } from '../src/explorer/css-values';

describe('values from style sheets', () => {
  it('are not looked for', () => {
    class VisualProperties {
      _get_css_value(name: string): string {
        return `asked for ${name}`;
      }
    }
    const visual = new VisualProperties();
    withoutCssValues({ VisualProperties });
    expect(visual._get_css_value('line-color')).toBe('');
  });

  it('are left alone where BokehJS has no such thing', () => {
    for (const module of [
      undefined,
      null,
      {},
      { VisualProperties: {} },
      { VisualProperties: { prototype: {} } }
    ]) {
      expect(() => {
        withoutCssValues(module);
      }).not.toThrow();
    }
  });
});
