/** How long what is revealed may still grow: figures come after their titles. */
const SETTLES_MS = 3000;

/**
 * Scroll to a part of the page, and stay there while `around` changes its size; until the user
 * does something. Returns what ends it.
 */
export function reveal(part: HTMLElement, around: HTMLElement): () => void {
  const go = () => {
    part.scrollIntoView({ block: 'start' });
  };
  const sizes = new ResizeObserver(go);
  const uses = ['wheel', 'pointerdown', 'keydown', 'touchstart'];
  const end = () => {
    clearTimeout(timer);
    sizes.disconnect();
    for (const use of uses) {
      window.removeEventListener(use, end, true);
    }
  };
  const timer = setTimeout(end, SETTLES_MS);
  for (const use of uses) {
    window.addEventListener(use, end, true);
  }
  sizes.observe(around);
  go();
  return end;
}
