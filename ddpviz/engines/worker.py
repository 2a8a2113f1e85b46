"""What runs inside an engine: it becomes a rank, does tasks for the client, and leaves.

The client calls :func:`call` with a task's name. State is the module's, as an engine is one
rank of one session at a time. torch is imported by the first task, not with this module: the
client imports it too.
"""

from __future__ import annotations

import datetime
import faulthandler
import functools
import inspect
import os
import signal
import socket
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddpviz.engines import guard
from ddpviz.engines.errors import ConfigurationError, WorkloadError
from ddpviz.engines.ranks import EngineInfo, Placement, Problem, Report, this_host
from ddpviz.engines.state import FLUSH_SECONDS, STALL_SECONDS, Outbox, RankState

_HERE = str(Path(__file__).parent)
_PROBE = str(Path(__file__).parents[1] / "probe")

_state: RankState | None = None
#: Of this engine's session, also after it left: its last batches may have to be sent again.
_outbox: Outbox | None = None
_store: Any = None
#: Whether gloo's interface was chosen here.
_loopback = False
_abandoned: list[Any] = []


def call(name: str, *arguments: Any) -> Report:
    """Run a task; an exception of any kind comes back as a Problem, never as a raise.

    Tasks of ``training`` get this rank's state first.
    """
    try:
        return Report(_task(name)(*arguments), None, _sent())
    except BaseException as error:
        problem = _problem(error)
        if name == "cell" and isinstance(error, KeyboardInterrupt):
            # Ctrl-C came before the cell's own code, and ends no more than that would have.
            return Report(problem, None, _sent())
        # A refused configuration is no failure: the old one holds again.
        if name in ("build", "run") and _state is not None and not problem.refused:
            _state.recorder.failed(error)
        return Report(None, problem, _sent())


def _task(name: str) -> Callable[..., Any]:
    if name in _TASKS:
        return _TASKS[name]
    from ddpviz.engines import training

    task: Callable[..., Any] = getattr(training, name)
    return task if name == "options" else functools.partial(task, _rank())


def _problem(error: BaseException) -> Problem:
    state, time_ns = _state, time.time_ns()
    step = -1 if state is None else state.step
    doing = "" if state is None else state.recorder.current
    if isinstance(error, (ConfigurationError, WorkloadError)):
        refused = isinstance(error, ConfigurationError)
        return Problem(time_ns, step, doing, str(error), refused=refused)
    # The first frames are ours: the user's begin below the last of this folder's.
    stack = traceback.extract_tb(error.__traceback__)
    own = [i for i, frame in enumerate(stack) if os.path.dirname(frame.filename) == _HERE]
    if own and (own[-1] + 1 < len(stack) or isinstance(error, SyntaxError)):
        del stack[: own[-1] + 1]
    # Between the user's code and torch may be the recorder's wraps of torch's functions.
    if stack and os.path.dirname(stack[-1].filename) != _PROBE:
        stack[:] = [one for one in stack if os.path.dirname(one.filename) != _PROBE]
    frames = tuple((one.filename, one.lineno or 0, one.name, one.line or "") for one in stack)
    message = "".join(traceback.format_exception_only(type(error), error)).strip()
    return Problem(time_ns, step, doing, message, frames)


def _sent() -> int:
    return 0 if _outbox is None else _outbox.sent


def _rank() -> RankState:
    if _state is None:
        raise RuntimeError("found an engine that is no rank, expected it to have joined before")
    return _state


# --- tasks ---------------------------------------------------------------------------------------


def identify() -> EngineInfo:
    """What this engine is, for a session that begins: it leaves an earlier one."""
    global _outbox
    leave()
    _outbox = None  # else the new session would ask for the earlier one's batches

    import torch
    from torch.nn.parallel import DistributedDataParallel

    return EngineInfo(
        pid=os.getpid(),
        ticks=guard.start_ticks(os.getpid()),
        host=this_host(),
        cores=len(os.sched_getaffinity(0)),
        gpus=_gpus(),
        nccl=torch.distributed.is_nccl_available(),
        ddp_arguments=tuple(inspect.signature(DistributedDataParallel.__init__).parameters)[1:],
    )


@functools.lru_cache(maxsize=1)  # of the time before see() narrows it
def _gpus() -> tuple[str, ...]:
    import torch

    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    if torch.backends.cuda.is_built() and any(name.startswith("MIG-") for name in named):
        return tuple(named)  # a process can use one of them, so counting would start CUDA on that
    # device_count asks NVML and starts no CUDA, so CUDA_VISIBLE_DEVICES can still be set.
    count = torch.cuda.device_count() if torch.backends.cuda.is_built() else 0
    return tuple(named[:count] if named else map(str, range(count)))


def see(visible_gpu: str | None) -> None:
    """Bind this engine to its GPU. A task of its own, before anything starts CUDA."""
    if visible_gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible_gpu


def rendezvous(local: bool) -> tuple[str, int]:
    """On rank 0: a store at a port the system picked, so no other process can have it.

    Returns (host, port) for the other ranks.
    """
    global _store
    import torch
    import torch.distributed as dist

    if not local:
        host = _address()
        _store = dist.TCPStore(host, 0, None, True, wait_for_workers=False)
        return host, _store.port
    host, port = "127.0.0.1", 0
    given: dict[str, Any] = {}
    # By itself it would listen on every interface, and it knows no password. In torch 2.6 its
    # libuv backend refuses a socket; the other one takes it (checked on 2.6 and 2.13).
    known = dist.TCPStore.__init__.__doc__ or ""
    if "master_listen_fd" not in known or "use_libuv" not in known:
        raise RuntimeError(
            f"found torch {torch.__version__}, whose TCPStore cannot be told where to listen, "
            "expected one that can, as 2.6 to 2.13: it would be open to the network"
        )
    listening = socket.create_server((host, port))
    port = listening.getsockname()[1]
    given = {"master_listen_fd": listening.detach(), "use_libuv": False}
    _store = dist.TCPStore(host, port, None, True, wait_for_workers=False, **given)
    return host, _store.port


def _address() -> str:
    """This machine's address on its way out; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()


def _talk_locally(local: bool) -> None:
    """Let gloo use the loopback interface, or what it chooses itself."""
    global _loopback
    if _loopback:
        os.environ.pop("GLOO_SOCKET_IFNAME", None)
    # A laptop's own name often does not resolve, and gloo asks for its address.
    _loopback = local and "GLOO_SOCKET_IFNAME" not in os.environ
    if _loopback:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"


def join(
    placement: Placement,
    host: str,
    port: int,
    seed: int,
    directory: str,
    level: str,
    fingerprints: tuple[int, int],
) -> None:
    """Become a rank: make the process group, then start recording."""
    global _state, _outbox
    import torch
    import torch.distributed as dist

    from ddpviz.probe import Recorder
    from ddpviz.probe.schedule import Schedule
    from ddpviz.recording import RankWriter, ring_path

    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    stack_file = open(stack_path(folder, placement.rank), "w")  # noqa: SIM115 - till leave()
    # Fatal signals (gloo aborts) leave Python's stack here; SIGUSR1 leaves it without dying,
    # also while the main thread is in C.
    faulthandler.enable(file=stack_file, all_threads=True)
    faulthandler.register(signal.SIGUSR1, file=stack_file, all_threads=True)

    _talk_locally(placement.local)
    torch.set_num_threads(placement.threads)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    store = _store if placement.rank == 0 else dist.TCPStore(host, port, None, False)
    dist.init_process_group(
        placement.backend,
        store=store,
        rank=placement.rank,
        world_size=placement.world_size,
        timeout=datetime.timedelta(minutes=30),
        device_id=torch.device(placement.device) if placement.backend == "nccl" else None,
    )
    _outbox, writer, recorder = Outbox(), None, None
    try:
        writer = RankWriter(folder, placement.rank)
        recorder = Recorder(
            sinks=[writer, _outbox],
            level=level,
            ring_path=ring_path(folder, placement.rank),
            flush_interval_s=FLUSH_SECONDS,
            fingerprints=Schedule(*fingerprints),
            device=placement.device,
            stall_s=STALL_SECONDS,
        )
        recorder.install()
    except BaseException:  # a full disk: this process may be asked to join again
        if recorder is not None:
            recorder.close()
        elif writer is not None:
            writer.close()
        _part(store, stack_file)
        raise
    _state = RankState(placement, seed, folder, recorder, store, stack_file)


def stack_path(folder: Path, rank: int) -> Path:
    """Where a rank's stack is written when it dies of a signal, or is asked for it."""
    return folder / f"rank-{rank:04d}.stack.txt"


def again(sequences: list[int]) -> list[bytes]:
    """Packed batches by number, as far as they are still kept."""
    return [] if _outbox is None else _outbox.again(sequences)


def cell(code: str, number: int, live: bool) -> Problem | None:
    """Code of the user's; what it raised, which ends nothing but itself.

    SIGINT ends it, and nothing that comes after it.
    """
    from ddpviz.engines import cells

    state = _rank()
    state.watch(live)
    found = None
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            cells.run(state, code, number)
        finally:
            # The engine sets its own again when it has answered.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    except BaseException as error:
        found = _problem(error)
        state.recorder.steps.abandon()  # what it was in the middle of is no part of what comes next
    state.recorder.flush()
    return found


def _part(store: Any, stack_file: Any) -> None:
    """Give up what :func:`join` made beside the recorder."""
    import torch.distributed as dist

    # Kept alive: the destructor of a gloo group waits for peers that may be gone.
    _abandoned.append((dist.group.WORLD, store))
    dist.destroy_process_group()
    _talk_locally(False)
    faulthandler.unregister(signal.SIGUSR1)
    faulthandler.disable()
    stack_file.close()


def leave() -> None:
    """Stop recording and give the process group up."""
    global _state
    if _state is None:
        return
    state, _state = _state, None
    state.recorder.close()
    state.ddp = state.call = state.model = state.optimizer = None
    _part(state.store, state.stack_file)
    path = stack_path(state.directory, state.placement.rank)
    if path.exists() and not path.stat().st_size:
        path.unlink()


_TASKS: dict[str, Callable[..., Any]] = {
    task.__name__: task for task in (identify, see, rendezvous, join, again, cell, leave)
}
