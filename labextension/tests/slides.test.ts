// @vitest-environment jsdom
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { SessionClient } from '../src/explorer/client';
import { Slides, stepsOf, told } from '../src/explorer/slides';
import { ScriptedTransport, settled, state } from './support';

const EVIL = '<img src=x onerror="window.hit = 1">';

let transport: ScriptedTransport;
let client: SessionClient;
let slides: Slides;

beforeEach(() => {
  transport = new ScriptedTransport();
  transport.answers['slides'] = () => [
    { name: 'job', title: 'The job', disabled: null },
    { name: 'plan', title: EVIL, disabled: null },
    { name: 'comparison', title: 'Compared', disabled: `not yet ${EVIL}` }
  ];
  transport.answers['deck'] = () => ({
    name: 'talk-slides.html',
    size: '2.5 MiB',
    path: `/home/${EVIL}/talk-slides.html`
  });
  client = new SessionClient(transport, 's1-1');
  client.learn(state());
  slides = new Slides(client);
  document.body.replaceChildren(slides.toggle, slides.node);
});

afterEach(() => {
  slides.dispose();
  client.dispose();
});

const button = (place: string) => {
  const found = slides.node.querySelector<HTMLButtonElement>(
    `[data-place=${place}]`
  );
  if (found === null) {
    throw new Error(`no button ${place}`);
  }
  return found;
};

async function unfold(): Promise<HTMLInputElement[]> {
  slides.toggle.click();
  await settled();
  return [...slides.node.querySelectorAll<HTMLInputElement>('[type=checkbox]')];
}

describe('the fold of slides', () => {
  it('offers those that can be had, with names as text', async () => {
    const boxes = await unfold();
    expect(boxes.map(box => [box.value, box.checked, box.disabled])).toEqual([
      ['job', true, false],
      ['plan', true, false],
      ['comparison', false, true]
    ]);
    expect(slides.node.textContent).toContain(`not yet ${EVIL}`);
    expect(slides.node.querySelector('img')).toBeNull();
  });

  it('asks for what is ticked, with titles, step and theme', async () => {
    const [job] = await unfold();
    job?.click();
    const titles =
      slides.node.querySelectorAll<HTMLInputElement>('[type=text]');
    const [, plan] = titles;
    if (plan !== undefined) {
      plan.value = ' Mine ';
    }
    const [step] = slides.node.querySelectorAll('select');
    if (step !== undefined) {
      step.value = 'shown';
    }
    button('kernel').click();
    await settled();
    expect(transport.of('deck')).toEqual([
      {
        session: 's1-1',
        place: 'kernel',
        slides: ['plan'],
        titles: { plan: 'Mine' },
        title: '',
        steps: [7],
        theme: 'auto'
      }
    ]);
    expect(slides.node.textContent).toContain(
      `Saved as /home/${EVIL}/talk-slides.html, 2.5 MiB.`
    );
  });

  it('says why no deck can be made, and what went wrong', async () => {
    const boxes = await unfold();
    for (const box of boxes.filter(one => one.checked)) {
      box.click();
    }
    expect(button('browser').title).toBe('no slide is ticked');
    button('browser').click();
    await settled();
    expect(transport.of('deck')).toEqual([]);
    boxes[0]?.click();
    transport.answers['deck'] = () => {
      throw new Error('the recording has no step yet');
    };
    button('kernel').click();
    await settled();
    expect(slides.node.querySelector('[role=alert]')?.textContent).toBe(
      'the recording has no step yet'
    );
    expect(button('browser').hasAttribute('aria-disabled')).toBe(false);
  });

  it('keeps what was ticked when it is read again', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    const [job] = await unfold();
    job?.click();
    for (const expanded of ['false', 'true']) {
      vi.advanceTimersByTime(1000); // or it were a double click
      slides.toggle.click();
      expect(slides.toggle.getAttribute('aria-expanded')).toBe(expanded);
    }
    await settled();
    vi.useRealTimers();
    expect(transport.of('slides')).toHaveLength(2);
    const [again] =
      slides.node.querySelectorAll<HTMLInputElement>('[type=checkbox]');
    expect(again?.checked).toBe(false);
  });
});

describe('steps by number', () => {
  it('are numbers and spans', () => {
    expect(stepsOf('4, 7-9; 12 – 13 ,')).toEqual([4, 7, 8, 9, 12, 13]);
    for (const text of ['x', '4,-1', '9-7', '1-', '0-1000', '1.5']) {
      expect(() => stepsOf(text)).toThrow(`found the steps “${text}”`);
    }
  });

  it('are asked for in place of the list’s choice', async () => {
    await unfold();
    const field = slides.node.querySelector<HTMLInputElement>(
      '[aria-label^="Steps of the deck"]'
    );
    if (field === null) {
      throw new Error('no field for steps');
    }
    field.value = '3-5';
    button('kernel').click();
    await settled();
    expect(transport.of('deck')).toMatchObject([{ steps: [3, 4, 5] }]);
    field.value = 'all';
    button('browser').click();
    await settled();
    expect(transport.of('deck')).toHaveLength(1);
    expect(slides.node.querySelector('[role=alert]')?.textContent).toContain(
      'expected numbers and spans like 4, 7-9'
    );
  });
});

describe('what became of it', () => {
  it('is said with its size', () => {
    expect(told({ name: 'a.html', size: '1 MiB' })).toBe(
      'Downloaded as a.html, 1 MiB.'
    );
  });
});
