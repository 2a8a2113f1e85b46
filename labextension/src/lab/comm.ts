import type { Kernel, KernelMessage } from '@jupyterlab/services';
import { KernelMessage as Messages } from '@jupyterlab/services';
import type { JSONObject } from '@lumino/coreutils';
import { UUID } from '@lumino/coreutils';

/** A comm that this page opened; what is needed of it. */
export interface Comm {
  onMessage: ((data: JSONObject, buffers: readonly DataView[]) => void) | null;
  /** The kernel closed it, or knows no such target. */
  onClose: (() => void) | null;
  open(data: JSONObject): void;
  send(data: JSONObject): void;
  close(): void;
}

/** How long a kernel may take to make a subshell before the main shell is used. */
const SUBSHELL_MS = 2000;

/**
 * A comm to the kernel, to be opened.
 *
 * It waits for JupyterLab's subshell of that target, where the kernel has subshells: the opening
 * itself is then served while a cell runs, and not after it.
 */
export async function commOn(
  kernel: Kernel.IKernelConnection,
  target: string
): Promise<Comm> {
  if (!kernel.handleComms) {
    return new BareComm(kernel, target, await subshellFor(kernel, target));
  }
  const comm = kernel.createComm(target);
  if (await hasSubshells(kernel)) {
    await within(SUBSHELL_MS, started(comm));
  }
  return new HandledComm(comm);
}

/** Through a connection that handles comms, as the one of an open notebook does. */
class HandledComm implements Comm {
  onMessage: Comm['onMessage'] = null;
  onClose: Comm['onClose'] = null;

  constructor(private readonly _comm: Kernel.IComm) {
    _comm.onMsg = message => {
      this.onMessage?.(message.content.data, buffersOf(message));
    };
    _comm.onClose = () => {
      this.onClose?.();
    };
  }

  open(data: JSONObject): void {
    this._comm.open(data);
  }

  send(data: JSONObject): void {
    this._comm.send(data);
  }

  close(): void {
    this.onClose = null;
    if (!this._comm.isDisposed) {
      try {
        this._comm.close();
      } catch {
        // The connection is gone already, and the comm with it.
      }
    }
  }
}

/**
 * Through a connection of our own, to a kernel that no document of this page is connected to.
 *
 * That connection must not handle comms: it knows no targets, so JupyterLab would close the
 * widgets' comms that other pages wait for.
 */
class BareComm implements Comm {
  onMessage: Comm['onMessage'] = null;
  onClose: Comm['onClose'] = null;

  private readonly _id = UUID.uuid4();
  private _open = false;

  constructor(
    private readonly _kernel: Kernel.IKernelConnection,
    private readonly _target: string,
    private readonly _subshell: string | null
  ) {}

  open(data: JSONObject): void {
    this._open = true;
    this._kernel.iopubMessage.connect(this._receive, this);
    this._post('comm_open', {
      comm_id: this._id,
      target_name: this._target,
      data
    });
  }

  send(data: JSONObject): void {
    this._post('comm_msg', { comm_id: this._id, data });
  }

  close(): void {
    this.onClose = null;
    if (this._open && !this._kernel.isDisposed) {
      this._forget();
      try {
        this._post('comm_close', { comm_id: this._id, data: {} });
      } catch {
        // The connection is gone already, and the comm with it.
      }
    }
  }

  private _post(
    msgType: 'comm_open' | 'comm_msg' | 'comm_close',
    content: JSONObject
  ): void {
    const message = Messages.createMessage({
      msgType,
      channel: 'shell',
      username: this._kernel.username,
      session: this._kernel.clientId,
      subshellId: this._subshell,
      content
    } as unknown as KernelMessage.IOptions<KernelMessage.ICommMsgMsg<'shell'>>);
    this._kernel.sendShellMessage(message, false, true);
  }

  private _receive(
    _: Kernel.IKernelConnection,
    message: KernelMessage.IIOPubMessage
  ): void {
    if (
      Messages.isCommMsgMsg(message) &&
      message.content.comm_id === this._id
    ) {
      this.onMessage?.(message.content.data, buffersOf(message));
    } else if (
      Messages.isCommCloseMsg(message) &&
      message.content.comm_id === this._id
    ) {
      this._forget();
      this.onClose?.();
    }
  }

  private _forget(): void {
    this._open = false;
    this._kernel.iopubMessage.disconnect(this._receive, this);
  }
}

/** Subshells of our own connections: one for each target, as JupyterLab has it. */
const subshells = new WeakMap<
  Kernel.IKernelConnection,
  Map<string, Promise<string | null>>
>();

/** Forget them: the kernel that had them was restarted. */
export function forgetSubshells(kernel: Kernel.IKernelConnection): void {
  subshells.delete(kernel);
}

async function subshellFor(
  kernel: Kernel.IKernelConnection,
  target: string
): Promise<string | null> {
  if (!(await hasSubshells(kernel))) {
    return null;
  }
  const known =
    subshells.get(kernel) ?? new Map<string, Promise<string | null>>();
  subshells.set(kernel, known);
  let subshell = known.get(target);
  if (subshell === undefined) {
    subshell = kernel
      .requestCreateSubshell({})
      .done.then(reply => reply.content.subshell_id)
      .catch(() => null);
    known.set(target, subshell);
  }
  return (await within(SUBSHELL_MS, subshell)) ?? null;
}

/** JupyterLab has subshells since 4.4, ipykernel since 7. */
async function hasSubshells(
  kernel: Kernel.IKernelConnection
): Promise<boolean> {
  await within(SUBSHELL_MS, kernel.info);
  return (kernel as { supportsSubshells?: boolean }).supportsSubshells === true;
}

function started(comm: Kernel.IComm): Promise<unknown> {
  const { subshellStarted } = comm as { subshellStarted?: Promise<unknown> };
  return (subshellStarted ?? Promise.resolve()).catch(() => null);
}

function within<T>(
  milliseconds: number,
  promise: Promise<T>
): Promise<T | undefined> {
  return Promise.race([
    promise,
    new Promise<undefined>(resolve => {
      setTimeout(resolve, milliseconds);
    })
  ]);
}

function buffersOf(message: KernelMessage.IMessage): readonly DataView[] {
  return (message.buffers ?? []).map(buffer =>
    buffer instanceof ArrayBuffer
      ? new DataView(buffer)
      : new DataView(buffer.buffer, buffer.byteOffset, buffer.byteLength)
  );
}
