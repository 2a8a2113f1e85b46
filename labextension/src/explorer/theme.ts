/** Light or dark: what the page around says, JupyterLab first, then VS Code and Colab. */

export type ThemeName = 'light' | 'dark';

export function themeNow(): ThemeName {
  const body = document.body;
  const jupyter = body.dataset['jpThemeLight'];
  if (jupyter !== undefined) {
    return jupyter === 'false' ? 'dark' : 'light';
  }
  const code = body.dataset['vscodeThemeKind'];
  if (code !== undefined) {
    return code.includes('light') ? 'light' : 'dark';
  }
  const colab = document.documentElement.getAttribute('theme');
  if (colab !== null) {
    return colab === 'dark' ? 'dark' : 'light';
  }
  return matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
}

/** Call back at each change of the theme; returns what ends that. */
export function onTheme(callback: (theme: ThemeName) => void): () => void {
  let known = themeNow();
  const look = () => {
    const now = themeNow();
    if (now !== known) {
      known = now;
      callback(now);
    }
  };
  const observer = new MutationObserver(look);
  observer.observe(document.body, {
    attributes: true,
    attributeFilter: ['data-jp-theme-light', 'data-vscode-theme-kind']
  });
  observer.observe(document.documentElement, {
    attributes: true,
    attributeFilter: ['theme']
  });
  const media = matchMedia('(prefers-color-scheme: dark)');
  media.addEventListener('change', look);
  return () => {
    observer.disconnect();
    media.removeEventListener('change', look);
  };
}
