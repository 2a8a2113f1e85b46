import { afterEach, describe, expect, it } from 'vitest';

import { SessionClient } from '../src/explorer/client';
import type { ViewUpdate } from '../src/explorer/frame';
import { ScriptedTransport, frame, settled, state } from './support';

const packed = (step: number) => ({
  timeline: { structure: 1, step, title: '' }
});

let client: SessionClient | undefined;

afterEach(() => {
  client?.dispose();
});

function connect(): { transport: ScriptedTransport; drawn: ViewUpdate[] } {
  const transport = new ScriptedTransport();
  client = new SessionClient(transport, 's1-1');
  const drawn: ViewUpdate[] = [];
  client.watch({
    view: 'timeline',
    width_px: 800,
    draw: update => drawn.push(update)
  });
  return { transport, drawn };
}

describe('a session in the browser', () => {
  it('asks for what is seen, once for all who look at it', async () => {
    const { transport } = connect();
    client?.watch({ view: 'timeline', width_px: 400, draw: () => undefined });
    client?.watch({ view: 'plan', width_px: 0, draw: () => undefined });
    await settled();
    expect(transport.of('watch')).toEqual([
      {
        session: 's1-1',
        views: ['timeline'],
        step: 'newest',
        hidden: false,
        width_px: 800,
        widths: { timeline: 400 }
      }
    ]);
  });

  it('asks for switches again whenever the settings are others', () => {
    connect();
    let asked = 0;
    client?.switchesChanged.subscribe(() => {
      asked += 1;
    });
    client?.learn(state({ configured: 1 }));
    client?.learn(state({ configured: 1, step: 7 }));
    expect(asked).toBe(1);
    client?.learn(state({ configured: 2, step: 8 }));
    expect(asked).toBe(2);
  });

  it('draws the other views where one cannot be drawn', async () => {
    const { transport, drawn } = connect();
    client?.watch({
      view: 'plan',
      width_px: 400,
      draw: () => {
        throw new Error('no room');
      }
    });
    const plan = { plan: { structure: 1, step: 10, title: '' } };
    transport.send(frame(1, {}, { ...plan, ...packed(10) }));
    await settled();
    expect(drawn.map(update => update.step)).toEqual([10]);
    expect(client?.problem).toContain('no room');
  });

  it('draws frames in their order, and none twice', async () => {
    const { transport, drawn } = connect();
    for (const [sequence, step] of [
      [1, 10],
      [3, 12],
      [2, 11],
      [3, 12],
      [4, 13]
    ] as const) {
      transport.send(frame(sequence, {}, packed(step)));
      await settled();
    }
    expect(drawn.map(update => update.step)).toEqual([10, 12, 13]);
  });

  it('draws of frames that came together the newest of each view, once', async () => {
    const { transport, drawn } = connect();
    const plans: number[] = [];
    client?.watch({
      view: 'plan',
      width_px: 400,
      draw: update => plans.push(update.step)
    });
    const plan = { plan: { structure: 1, step: 20, title: '' } };
    transport.send(frame(1, { step: 1 }, { ...packed(10), ...plan }));
    transport.send(frame(2, { step: 2 }, packed(11)));
    transport.send(frame(3, { step: 3 }));
    await settled();
    expect(drawn.map(update => update.step)).toEqual([11]);
    expect(plans).toEqual([20]);
    expect(client?.state?.step).toBe(3);
    await new Promise(resolve => setTimeout(resolve, 100));
    expect(transport.of('ack')).toEqual([{ sequence: 3 }]);
  });

  it('draws nothing of a connection that is gone', async () => {
    const { transport, drawn } = connect();
    transport.send(frame(41, {}, packed(10)));
    transport.become('disconnected');
    transport.become('connected');
    transport.send(frame(1, {}, packed(11)));
    await settled();
    expect(drawn.map(update => update.step)).toEqual([11]);
  });

  it('marks the frame that it shows, and keeps that mark alone', async () => {
    const { transport } = connect();
    for (const [sequence, step] of [
      [1, 10],
      [2, 11]
    ] as const) {
      transport.send(frame(sequence, {}, packed(step)));
      await settled();
    }
    const marks = performance.getEntriesByName('ddpviz:frame');
    expect(
      marks.map(mark => (mark as PerformanceMark).detail as unknown)
    ).toEqual([{ sequence: 2, steps: { timeline: 11 } }]);
  });

  it('begins again with the numbers after a reconnect, and asks again', async () => {
    const { transport, drawn } = connect();
    await settled();
    transport.send(frame(41, {}, packed(10)));
    await settled();
    const before = client?.epoch ?? 0;
    transport.become('disconnected');
    transport.become('connected');
    await settled();
    transport.send(frame(1, {}, packed(11)));
    await settled();
    expect(drawn.map(update => update.step)).toEqual([10, 11]);
    // Figures of the kernel that was may have other models.
    expect(client?.epoch).toBe(before + 1);
    expect(transport.of('watch')).toHaveLength(2);
  });

  it('tells the kernel that a frame is drawn, after it is', async () => {
    const { transport } = connect();
    transport.send(frame(5));
    expect(transport.of('ack')).toEqual([]);
    await new Promise(resolve => setTimeout(resolve, 100));
    expect(transport.of('ack')).toEqual([{ sequence: 5 }]);
  });

  it('takes no frame of another session of the same widget', async () => {
    const { transport, drawn } = connect();
    transport.send(frame(1, { session: 's2-1' }, packed(3)));
    await settled();
    expect(drawn).toEqual([]);
    expect(client?.state).toBeNull();
  });

  it('follows the newest step until it is told to stay at one', async () => {
    const { transport } = connect();
    transport.send(frame(1, { follow_steps: [0, 7] }, packed(7)));
    await settled();
    expect(client?.shownStep).toBe(7);
    client?.lookAt(99);
    expect(client?.step).toBe(7);
    client?.lookAt(-5);
    await settled();
    expect(transport.of('watch').at(-1)).toMatchObject({ step: 0 });
    client?.lookAt('newest');
    await settled();
    expect(transport.of('watch').at(-1)).toMatchObject({ step: 'newest' });
  });

  it('says what an action met, in the words of the kernel', async () => {
    const { transport } = connect();
    transport.answers['start'] = () => {
      throw new Error('rank 1 failed: restart first');
    };
    await expect(client?.act('start')).rejects.toThrow('rank 1 failed');
    expect(client?.problem).toBe('rank 1 failed: restart first');
  });
});
