import { afterEach, beforeEach, describe, expect, it } from 'vitest';

import schema from '../schema/live.json';
import { SessionClient } from '../src/explorer/client';
import { listenForKeys } from '../src/explorer/keys';
import { StepBar } from '../src/explorer/steps';
import { Command } from '../src/plugins/commands';
import { ScriptedTransport, frame, settled } from './support';

let client: SessionClient;
let bar: StepBar;
let node: HTMLElement;
let end: () => void;

beforeEach(async () => {
  const transport = new ScriptedTransport();
  client = new SessionClient(transport, 's1-1');
  transport.send(frame(1, { follow_steps: [0, 7] }));
  await settled();
  bar = new StepBar(client);
  node = document.createElement('div');
  node.append(bar.node);
  document.body.append(node);
  end = listenForKeys(node, client);
});

afterEach(() => {
  end();
  bar.dispose();
  client.dispose();
  node.remove();
});

/** Whether the key was taken. */
function press(
  key: string,
  at: Element = node,
  more: KeyboardEventInit = {}
): boolean {
  const event = new KeyboardEvent('keydown', {
    key,
    bubbles: true,
    cancelable: true,
    ...more
  });
  at.dispatchEvent(event);
  return event.defaultPrevented;
}

describe('keys of an explorer', () => {
  it('go through the steps', () => {
    expect(client.step).toBe('newest');
    expect(press('ArrowLeft')).toBe(true);
    expect(client.step).toBe(6);
    press('ArrowLeft');
    expect(client.step).toBe(5);
    press('ArrowRight');
    expect(client.step).toBe(6);
    press('Home');
    expect(client.step).toBe(0);
    press('ArrowLeft');
    expect(client.step).toBe(0);
    press('End');
    expect(client.step).toBe('newest');
  });

  it('pause and follow', () => {
    press(' ');
    expect(client.step).toBe(7);
    press(' ');
    expect(client.step).toBe('newest');
  });

  it('reach nobody else once they are taken', () => {
    const seen: string[] = [];
    const listen = (event: KeyboardEvent) => seen.push(event.key);
    document.addEventListener('keydown', listen);
    press('ArrowLeft');
    press('a');
    document.removeEventListener('keydown', listen);
    expect(seen).toEqual(['a']);
  });

  it('leave fields and buttons what they use themselves', () => {
    const field = node.querySelector('input');
    const button = node.querySelector('button');
    expect(field).not.toBeNull();
    expect(button).not.toBeNull();
    if (field !== null && button !== null) {
      expect(press('ArrowLeft', field)).toBe(false);
      expect(press('Home', field)).toBe(false);
      expect(press(' ', button)).toBe(false);
      expect(client.step).toBe('newest');
      expect(press('ArrowLeft', button)).toBe(true);
    }
  });

  it('mean something else with a modifier', () => {
    for (const modifier of ['altKey', 'ctrlKey', 'metaKey', 'shiftKey']) {
      expect(press('ArrowLeft', node, { [modifier]: true })).toBe(false);
    }
    expect(client.step).toBe('newest');
  });

  it('stand in the tooltips, and can be had by the keyboard', () => {
    press('ArrowLeft'); // at the newest step the tooltip says why there is no next one
    const titles = [...node.querySelectorAll<HTMLElement>('[title]')].map(
      one => one.title
    );
    for (const key of ['←', '→', 'Space', 'Home', 'End']) {
      expect(titles.filter(title => title.includes(`(${key})`))).toHaveLength(
        1
      );
    }
    expect(node.tabIndex).toBe(0);
  });

  it('are no longer taken once it is gone', () => {
    end();
    expect(press('ArrowLeft')).toBe(false);
  });
});

describe('shortcuts of the lab', () => {
  it('are of commands that there are, a different one each', () => {
    const shortcuts = schema['jupyter.lab.shortcuts'];
    const commands: string[] = Object.values(Command);
    for (const { command } of shortcuts) {
      expect(commands).toContain(command);
    }
    for (const command of [
      Command.previousStep,
      Command.nextStep,
      Command.follow
    ]) {
      expect(shortcuts.map(one => one.command)).toContain(command);
    }
    const keys = shortcuts.map(one => one.keys.join(' '));
    expect(new Set(keys).size).toBe(keys.length);
  });
});
