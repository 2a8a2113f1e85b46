import js from '@eslint/js';
import tseslint from 'typescript-eslint';

export default tseslint.config(
  { ignores: ['lib', 'node_modules', '.yarn'] },
  js.configs.recommended,
  {
    files: ['src/**/*.ts', 'tests/**/*.ts'],
    extends: [tseslint.configs.strictTypeChecked],
    languageOptions: {
      parserOptions: {
        projectService: true,
        tsconfigRootDir: import.meta.dirname
      }
    },
    rules: { '@typescript-eslint/no-explicit-any': 'error' }
  },
  {
    // Of the browser part alone: it also runs where there is no JupyterLab.
    files: ['src/explorer/**/*.ts'],
    rules: {
      'no-restricted-imports': [
        'error',
        {
          patterns: [
            {
              group: ['@jupyterlab/*', '@lumino/*'],
              message: 'src/explorer also runs outside of JupyterLab.'
            }
          ]
        }
      ]
    }
  },
  {
    // Lumino's signals are told `this` beside the method: connect(this._draw, this).
    files: ['src/lab/**/*.ts'],
    rules: { '@typescript-eslint/unbound-method': 'off' }
  },
  {
    files: ['scripts/**/*.mjs', '*.mjs'],
    languageOptions: { globals: { URL: 'readonly' } }
  }
);
