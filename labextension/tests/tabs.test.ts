// @vitest-environment jsdom
import { beforeEach, describe, expect, it, vi } from 'vitest';

import { SessionClient } from '../src/explorer/client';
import { VIEWS } from '../src/explorer/protocol';
import { ViewTabs } from '../src/explorer/tabs';
import { ScriptedTransport } from './support';

class Sizes {
  observe = vi.fn();
  disconnect = vi.fn();
}

describe('the views below the timeline', () => {
  beforeEach(() => {
    vi.stubGlobal('ResizeObserver', Sizes);
    vi.stubGlobal('matchMedia', () => ({
      matches: false,
      addEventListener: vi.fn(),
      removeEventListener: vi.fn()
    }));
  });

  it('are all there, and only what is shown is made', () => {
    const client = new SessionClient(new ScriptedTransport(), 's1-1');
    const watched: string[] = [];
    const watch = client.watch.bind(client);
    vi.spyOn(client, 'watch').mockImplementation(watcher => {
      watched.push(watcher.view);
      const end = watch(watcher);
      return () => {
        watched.splice(watched.indexOf(watcher.view), 1);
        end();
      };
    });
    const tabs = new ViewTabs(client);
    expect(watched).toEqual(['steps', 'plan']);
    const seen = new Set(watched);
    const buttons = [
      ...tabs.node.querySelectorAll<HTMLButtonElement>('[role=tab]')
    ];
    for (const button of buttons.slice(1)) {
      button.click();
      expect(watched).toHaveLength(1);
      expect(button.getAttribute('aria-selected')).toBe('true');
      watched.forEach(view => seen.add(view));
    }
    expect(seen).toEqual(new Set(VIEWS.filter(view => view !== 'timeline')));
    tabs.dispose();
    expect(watched).toEqual([]);
    client.dispose();
  });

  it('are gone through by arrows, with one stop for the tab key', () => {
    const client = new SessionClient(new ScriptedTransport(), 's1-1');
    const tabs = new ViewTabs(client);
    document.body.append(tabs.node);
    const buttons = [
      ...tabs.node.querySelectorAll<HTMLButtonElement>('[role=tab]')
    ];
    const press = (key: string) => {
      document.activeElement?.dispatchEvent(
        new KeyboardEvent('keydown', { key, bubbles: true })
      );
    };
    const selected = () =>
      buttons.findIndex(one => one.getAttribute('aria-selected') === 'true');
    buttons[0]?.focus();
    press('ArrowRight');
    expect(selected()).toBe(1);
    press('ArrowLeft');
    press('ArrowLeft');
    expect(selected()).toBe(buttons.length - 1);
    expect(document.activeElement).toBe(buttons.at(-1));
    expect(buttons.filter(one => one.tabIndex === 0)).toHaveLength(1);
    tabs.dispose();
    tabs.node.remove();
    client.dispose();
  });
});
