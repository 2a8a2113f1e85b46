/** Slides of words alone: letters as large as lets all of them be seen. */

const SIZES_REM = [1.2, 1.1, 1, 0.9, 0.8, 0.7, 0.6] as const;

export function fitWords(): void {
  for (const slide of document.querySelectorAll<HTMLElement>('section.words')) {
    new ResizeObserver(() => {
      fit(slide);
    }).observe(slide);
  }
}

function fit(slide: HTMLElement): void {
  for (const size of SIZES_REM) {
    slide.style.setProperty('--ddpviz-words-size', `${String(size)}rem`);
    if (slide.scrollHeight <= slide.clientHeight) {
      return;
    }
  }
}
