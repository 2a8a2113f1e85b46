import type { JSONObject } from '@lumino/coreutils';
import { describe, expect, it } from 'vitest';

import type { Comm } from '../src/lab/comm';
import { CommTransport } from '../src/lab/comm-transport';
import { frame, settled, state } from './support';

/** A kernel's two comms; it answers `sessions` unless it has none, and then closes them. */
class Kernel {
  readonly comms: FakeComm[] = [];
  hasSession = true;

  readonly open = (target: string): Promise<Comm> => {
    const comm = new FakeComm(target, this);
    this.comms.push(comm);
    return Promise.resolve(comm);
  };

  last(target: string): FakeComm {
    const found = this.comms.filter(one => one.target === target).at(-1);
    if (found === undefined) {
      throw new Error(`no comm ${target} was opened`);
    }
    return found;
  }
}

class FakeComm implements Comm {
  onMessage: Comm['onMessage'] = null;
  onClose: Comm['onClose'] = null;
  readonly sent: JSONObject[] = [];
  opened: JSONObject | null = null;
  closed = false;

  constructor(
    readonly target: string,
    private readonly _kernel: Kernel
  ) {}

  open(data: JSONObject): void {
    this.opened = data;
    if (!this._kernel.hasSession) {
      setTimeout(() => this.onClose?.(), 0);
    }
  }

  send(data: JSONObject): void {
    this.sent.push(data);
    if (data['action'] === 'sessions' && this._kernel.hasSession) {
      const result = [state()] as unknown as JSONObject[];
      this.onMessage?.({ id: data['id'] ?? null, ok: true, result }, []);
    }
  }

  close(): void {
    this.closed = true;
  }
}

describe('the way over two comms', () => {
  it('opens both with the same client, and is connected once answered', async () => {
    const kernel = new Kernel();
    const transport = new CommTransport(kernel.open);
    expect(await transport.connect()).toBe(true);
    const frames = kernel.last('ddpviz.frames').opened;
    const control = kernel.last('ddpviz.control').opened;
    expect(frames?.['client']).toEqual(control?.['client']);
    expect(frames?.['version']).toBe(1);
    expect(transport.connection).toBe('connected');
  });

  it('never speaks on the comm of frames', async () => {
    const kernel = new Kernel();
    const transport = new CommTransport(kernel.open);
    await transport.connect();
    void transport.request('ack', { sequence: 1 });
    expect(kernel.last('ddpviz.frames').sent).toEqual([]);
  });

  it('waits where the kernel has no session yet', async () => {
    const kernel = new Kernel();
    kernel.hasSession = false;
    const transport = new CommTransport(kernel.open);
    expect(await transport.connect()).toBe(false);
    expect(transport.connection).toBe('waiting');
    kernel.hasSession = true;
    expect(await transport.connect()).toBe(true);
  });

  it('drops old frames, and takes those of a new connection from 1 on', async () => {
    const kernel = new Kernel();
    const transport = new CommTransport(kernel.open);
    const seen: number[] = [];
    transport.onFrame(header => seen.push(header.sequence));
    await transport.connect();
    const say = (sequence: number) =>
      kernel
        .last('ddpviz.frames')
        .onMessage?.(frame(sequence) as unknown as JSONObject, []);
    [1, 2, 2, 1, 5].forEach(say);
    await transport.connect();
    [1, 2].forEach(say);
    expect(seen).toEqual([1, 2, 5, 1, 2]);
  });

  it('hears nothing any more of a connection that was replaced', async () => {
    const kernel = new Kernel();
    const transport = new CommTransport(kernel.open);
    await transport.connect();
    const old = kernel.last('ddpviz.control');
    const client = kernel.last('ddpviz.frames').opened?.['client'];
    await transport.connect();
    expect(old.closed).toBe(true);
    expect(kernel.last('ddpviz.frames').opened?.['client']).not.toBe(client);
    old.onClose?.();
    expect(transport.connection).toBe('connected');
  });

  it('refuses what was asked when the kernel goes', async () => {
    const kernel = new Kernel();
    const transport = new CommTransport(kernel.open);
    await transport.connect();
    const asked = transport.request('start', { session: 's1-1' });
    const refused = expect(asked).rejects.toThrow('The kernel restarts.');
    transport.disconnect('The kernel restarts.');
    await refused;
    await expect(transport.request('start')).rejects.toThrow('not connected');
  });

  it('rejects with the sentence of the kernel', async () => {
    const kernel = new Kernel();
    const transport = new CommTransport(kernel.open);
    await transport.connect();
    const asked = transport.request('set');
    const control = kernel.last('ddpviz.control');
    control.onMessage?.(
      { id: control.sent.at(-1)?.['id'] ?? null, ok: false, error: 'no cap' },
      []
    );
    await expect(asked).rejects.toThrow('no cap');
    await settled();
  });
});
