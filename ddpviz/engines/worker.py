"""What runs inside an engine: its rank's process group, model, DDP module and steps.

The client calls :func:`call` with a task's name. State is the module's, as an engine is one
rank of one session at a time. Imports torch; ipyparallel only to publish batches.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import faulthandler
import hashlib
import importlib
import inspect
import os
import pickle
import random
import signal
import socket
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddpviz.engines import guard
from ddpviz.engines.ranks import EngineInfo, Placement, Problem, Progressed, Report, this_host

#: Batches kept to be sent again: at 10 a second, more than a minute of a chunk.
_KEPT_BATCHES = 1024


@dataclasses.dataclass
class _Rank:
    """Everything of this engine's rank."""

    placement: Placement
    seed: int
    directory: Path
    recorder: Any
    outbox: _Outbox
    store: Any = None
    model: Any = None
    batch: Callable[[int], Any] | None = None
    loss: Callable[[Any, Any], Any] | None = None
    ddp: Any = None
    optimizer: Any = None
    step: int = -1
    next_step: int = 0


class _Outbox:
    """A sink that publishes each batch on the engine's own connection, and keeps the last ones."""

    def __init__(self) -> None:
        self.sent = 0
        self._kept: collections.deque[tuple[int, bytes]] = collections.deque(maxlen=_KEPT_BATCHES)

    def __call__(self, batch: Any) -> None:
        data = batch.to_bytes()
        self._kept.append((batch.sequence, data))
        self.sent = batch.sequence + 1
        from ipyparallel.engine.datapub import publish_data

        publish_data({"ddpviz": data})

    def again(self, sequences: list[int]) -> list[bytes]:
        wanted = set(sequences)
        return [data for sequence, data in list(self._kept) if sequence in wanted]


_state: _Rank | None = None
_crash_file: Any = None
_abandoned: list[Any] = []


def call(name: str, *arguments: Any) -> Report:
    """Run a task; an exception of any kind comes back as a Problem, never as a raise."""
    try:
        value = _TASKS[name](*arguments)
        return Report(value, None, _sent())
    except BaseException as error:
        problem = _problem(error)
        # A refused configuration is no failure: the old one holds again.
        if name in ("build", "run") and _state is not None:
            _state.recorder.failed(error)
        return Report(None, problem, _sent())


def _problem(error: BaseException) -> Problem:
    state = _state
    doing, step, time_ns = "", -1, time.time_ns()
    if state is not None:
        step = state.step
        doing = state.recorder.current
    # The first frames are ours: the user's begin below the last one of this file.
    stack = traceback.extract_tb(error.__traceback__)
    own = [i for i, frame in enumerate(stack) if frame.filename == __file__]
    if own and own[-1] + 1 < len(stack):
        del stack[: own[-1] + 1]
    frames = tuple((one.filename, one.lineno or 0, one.name, one.line or "") for one in stack)
    message = "".join(traceback.format_exception_only(type(error), error)).strip()
    return Problem(time_ns, step, doing, message, frames)


def _sent() -> int:
    return 0 if _state is None else _state.outbox.sent


def identify() -> EngineInfo:
    """What this engine is."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    # device_count asks NVML and starts no CUDA, so CUDA_VISIBLE_DEVICES can still be set.
    count = torch.cuda.device_count() if torch.backends.cuda.is_built() else 0
    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    gpus = named[:count] if named else [str(i) for i in range(count)]
    return EngineInfo(
        pid=os.getpid(),
        ticks=guard.start_ticks(os.getpid()),
        host=this_host(),
        hostname=socket.gethostname(),
        cores=len(os.sched_getaffinity(0)),
        gpus=tuple(gpus),
        nccl=torch.distributed.is_nccl_available(),
        torch=torch.__version__,
        ddp_arguments=tuple(inspect.signature(DistributedDataParallel.__init__).parameters)[1:],
    )


def see(visible_gpu: str | None) -> None:
    """Bind this engine to its GPU. A task of its own, before anything starts CUDA."""
    if visible_gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible_gpu


def rendezvous(local: bool) -> tuple[str, int]:
    """On rank 0: a store at a port the system picked, so no other process can have it.

    Returns (host, port) for the other ranks.
    """
    global _store
    import torch.distributed as dist

    host = "127.0.0.1" if local else _address()
    _store = dist.TCPStore(host, 0, None, True, wait_for_workers=False)
    return host, _store.port


_store: Any = None


def _address() -> str:
    """This machine's address on its way out; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()


def join(placement: Placement, host: str, port: int, seed: int, directory: str, level: str) -> None:
    """Become a rank: start recording, then make the process group."""
    global _state, _crash_file
    import torch
    import torch.distributed as dist

    from ddpviz.probe import Recorder
    from ddpviz.recording import RankWriter, ring_path

    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    _crash_file = open(crash_path(folder, placement.rank), "w")  # noqa: SIM115
    # Fatal signals (gloo aborts) leave Python's stack here; SIGUSR1 leaves it without dying,
    # also while the main thread is in C.
    faulthandler.enable(file=_crash_file, all_threads=True)
    faulthandler.register(signal.SIGUSR1, file=_crash_file, all_threads=True)

    if placement.local:
        # A laptop's own name often does not resolve, and gloo asks for its address.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
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
    outbox = _Outbox()
    recorder = Recorder(
        sinks=[RankWriter(folder, placement.rank), outbox],
        level=level,
        ring_path=ring_path(folder, placement.rank),
    )
    recorder.install()
    _state = _Rank(placement, seed, folder, recorder, outbox, store)


def crash_path(folder: Path, rank: int) -> Path:
    """Where a rank's stack is written when it dies of a signal, or is asked for it."""
    return folder / f"rank-{rank:04d}.stack.txt"


def build(workload: str | bytes, configuration: bytes) -> None:
    """Make model, batches and loss (a built-in's name, or a pickled function), and wrap.

    ``configuration``: (the workload's options, DDP's arguments), pickled.
    """
    import torch

    state = _rank()
    options, ddp = pickle.loads(configuration)
    function = _function(workload)
    _unwrap(state)
    _seed(state.seed)
    placement = state.placement
    device = torch.device(placement.device)
    made = function(placement.rank, placement.world_size, device, **options)
    if not isinstance(made, tuple) or len(made) != 3 or not isinstance(made[0], torch.nn.Module):
        raise TypeError(
            f"found that the workload returned {type(made).__name__}, expected a tuple: "
            "(torch.nn.Module, batch(step), loss(output, batch))"
        )
    model, state.batch, state.loss = made
    state.model = model.to(device)
    state.optimizer = torch.optim.SGD(state.model.parameters(), lr=0.01, momentum=0.9)
    state.next_step = 0
    # Other random numbers on each rank from here on (dropout), the same in each session.
    _seed(state.seed + 1 + placement.rank)
    _wrap(state, ddp)


def wrap(configuration: bytes) -> None:
    """Put DDP around the model anew, with these arguments (pickled).

    Weights, optimizer and step number stay.
    """
    _wrap(_rank(), pickle.loads(configuration))


def _wrap(state: _Rank, ddp: dict[str, Any]) -> None:
    import torch
    from torch.nn.parallel import DistributedDataParallel

    _unwrap(state)
    # Parameters live here, so the client names them.
    delayed = ddp.get("delay_all_reduce_named_params")
    if delayed is not None:
        ddp["delay_all_reduce_named_params"] = [
            (name, state.model.get_parameter(name)) for name in delayed
        ]
    hooked = ddp.get("param_to_hook_all_reduce")
    if hooked is not None:
        ddp["param_to_hook_all_reduce"] = state.model.get_parameter(hooked)
    on_gpu = state.placement.device.startswith("cuda")
    state.ddp = DistributedDataParallel(
        state.model, device_ids=[torch.device(state.placement.device)] if on_gpu else None, **ddp
    )
    state.recorder.flush()


def run(steps: int) -> Progressed:
    """So many training steps, all on this thread."""
    state = _rank()
    assert state.ddp is not None and state.batch is not None and state.loss is not None
    begin = time.perf_counter()
    loss = None
    try:
        for _ in range(steps):
            state.step = state.next_step
            batch = state.batch(state.step)
            state.optimizer.zero_grad(set_to_none=True)
            loss = state.loss(state.ddp(*_inputs(batch)), batch)
            loss.backward()
            state.optimizer.step()
            state.next_step += 1
        state.step = -1
    finally:
        state.recorder.flush()
    return Progressed(
        state.next_step,
        float("nan") if loss is None else float(loss.detach()),
        time.perf_counter() - begin,
    )


def checksum() -> str:
    """SHA-256 of this rank's parameters, as they lie in memory."""
    import torch

    digest = hashlib.sha256()
    for name, tensor in _rank().model.named_parameters():
        digest.update(name.encode())
        data = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(data.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def again(sequences: list[int]) -> list[bytes]:
    """Packed batches by number, as far as they are still kept."""
    return _rank().outbox.again(sequences)


def leave() -> None:
    """Stop recording and give the process group up."""
    global _state
    import torch.distributed as dist

    if _state is None:
        return
    state, _state = _state, None
    state.recorder.close()
    state.ddp = state.model = state.optimizer = None
    # Kept alive: the destructor of a gloo group waits for peers that may be gone.
    _abandoned.append((dist.group.WORLD, state.store))
    dist.destroy_process_group()
    faulthandler.unregister(signal.SIGUSR1)
    faulthandler.disable()
    _crash_file.close()
    path = crash_path(state.directory, state.placement.rank)
    if path.exists() and not path.stat().st_size:
        path.unlink()


def _rank() -> _Rank:
    if _state is None:
        raise RuntimeError("found an engine that is no rank, expected join() before: call load()")
    return _state


def _function(workload: str | bytes) -> Callable[..., Any]:
    if isinstance(workload, bytes):
        function = pickle.loads(workload)
        assert callable(function)
        return function
    return importlib.import_module(workload).build


def _inputs(batch: Any) -> tuple[Any, ...]:
    """The model's positional arguments: the batch itself, or its first item if it is a tuple."""
    first = batch[0] if isinstance(batch, (tuple, list)) else batch
    return tuple(first) if isinstance(first, (tuple, list)) else (first,)


def _unwrap(state: _Rank) -> None:
    state.ddp = None
    if state.model is not None:
        for parameter in state.model.parameters():
            parameter.grad = None  # with bucket views it would keep the old Reducer's memory


def _seed(seed: int) -> None:
    import numpy
    import torch

    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)


_TASKS: dict[str, Callable[..., Any]] = {
    task.__name__: task
    for task in (
        identify, see, rendezvous, join, build, wrap, run, checksum, again, leave
    )
}  # fmt: skip
