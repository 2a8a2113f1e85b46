/** Keys that go through the steps, wherever the focus is in an explorer or a panel. */

import type { SessionClient } from './client';
import { stepLimits } from './protocol';

/** What these use themselves. */
const OWN_KEYS =
  'input, select, textarea, [contenteditable], [role=slider], [role=tab], .ddpviz-code';
/** What a space presses. */
const PRESSED = `${OWN_KEYS}, button, a, summary, [role=button], [role=switch]`;

/** A key and what it is called in a tooltip. */
export const STEP_KEYS = {
  previous: ['ArrowLeft', '←'],
  next: ['ArrowRight', '→'],
  first: ['Home', 'Home'],
  newest: ['End', 'End'],
  toggle: [' ', 'Space']
} as const;
export type StepMove = keyof typeof STEP_KEYS;

/** Go through the steps of a session. */
export function moveStep(client: SessionClient, move: StepMove): void {
  const shown = client.shownStep;
  const limits = client.state === null ? null : stepLimits(client.state);
  if (shown === null || limits === null) {
    return;
  }
  const [first] = limits;
  switch (move) {
    case 'previous':
      client.lookAt(shown - 1);
      break;
    case 'next':
      client.lookAt(shown + 1);
      break;
    case 'first':
      client.lookAt(first);
      break;
    case 'newest':
      client.lookAt('newest');
      break;
    case 'toggle':
      client.lookAt(client.step === 'newest' ? shown : 'newest');
      break;
  }
}

/** "Previous step (←)". */
export function withKey(title: string, move: StepMove): string {
  return `${title} (${STEP_KEYS[move][1]})`;
}

/**
 * Make the node one that can have the focus, and take its keys; fields, sliders and buttons keep
 * what they use themselves. Returns what ends it.
 */
export function listenForKeys(
  node: HTMLElement,
  client: SessionClient
): () => void {
  node.tabIndex = 0;
  const names = Object.values(STEP_KEYS).map(([key, name]) =>
    key === ' ' ? name : key
  );
  node.setAttribute('aria-keyshortcuts', names.join(' '));
  const listen = (event: KeyboardEvent) => {
    const move = moveOf(event);
    if (move !== null) {
      // Neither the page scrolls, nor does the notebook go to another cell.
      event.preventDefault();
      event.stopPropagation();
      moveStep(client, move);
    }
  };
  node.addEventListener('keydown', listen);
  return () => {
    node.removeEventListener('keydown', listen);
  };
}

function moveOf(event: KeyboardEvent): StepMove | null {
  if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) {
    return null;
  }
  const keys = Object.entries(STEP_KEYS) as [
    StepMove,
    readonly [string, string]
  ][];
  const found = keys.find(([, [key]]) => key === event.key);
  if (found === undefined) {
    return null;
  }
  const uses = found[0] === 'toggle' ? PRESSED : OWN_KEYS;
  const { target } = event;
  return target instanceof Element && target.closest(uses) !== null
    ? null
    : found[0];
}
