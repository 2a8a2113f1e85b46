"""Ranks: what an engine is, which rank runs on which, and what a rank reports.

These cross from engine to client by pickle, so both sides import this module; it imports
neither torch nor ipyparallel.
"""

from __future__ import annotations

import dataclasses
import socket
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from ddpviz.engines.errors import SessionError


@dataclasses.dataclass(frozen=True)
class EngineInfo:
    """What an engine found about itself. ``ticks``: its start, see ``guard.start_ticks``.

    ``host``: see :func:`this_host`. ``gpus``: what CUDA_VISIBLE_DEVICES would take for each GPU
    it sees. ``ddp_arguments``: of its torch's ``DistributedDataParallel``.
    """

    pid: int
    ticks: int
    host: str
    cores: int
    gpus: tuple[str, ...]
    nccl: bool
    ddp_arguments: tuple[str, ...]


def nobody() -> EngineInfo:
    """Of an engine that has not been asked yet."""
    return EngineInfo(0, 0, "", 1, (), False, ())


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where one rank runs. ``visible_gpu``: its CUDA_VISIBLE_DEVICES, None to leave it alone."""

    rank: int
    world_size: int
    engine: int
    backend: str
    device: str
    visible_gpu: str | None
    threads: int
    local: bool


@dataclasses.dataclass(frozen=True)
class Problem:
    """An exception on a rank: when (ns since the epoch), where, what.

    ``step``: as the workload counts, from 0 at each load. ``frames``: (file, line number,
    function, source line), the call that raised last; none where no code of the user's did.
    ``refused``: it is a ConfigurationError, and nothing is broken.
    """

    time_ns: int
    step: int
    doing: str
    message: str
    frames: tuple[tuple[str, int, str, str], ...] = ()
    refused: bool = False

    def text(self) -> str:
        """The traceback. A notebook cell's lines, which no engine has, are looked up here."""
        if not self.frames:
            return self.message
        summary = traceback.StackSummary.from_list(
            [traceback.FrameSummary(file, number, name, line=line or None)
             for file, number, name, line in self.frames]
        )  # fmt: skip
        return "".join(["Traceback (most recent call last):\n", *summary.format(), self.message])


@dataclasses.dataclass(frozen=True)
class Report:
    """What a task on a rank ended with: a value, or a problem.

    ``sent``: batches that the rank has sent since its recorder began.
    """

    value: Any = None
    problem: Problem | None = None
    sent: int = 0


@dataclasses.dataclass(frozen=True)
class Progressed:
    """A chunk of steps on one rank: next step's number, last loss, seconds it took."""

    step: int
    loss: float
    seconds: float


def this_host() -> str:
    """A name of this machine's process table, the same in all processes that share it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()}/{boot}"


def _gpus(engines: dict[int, EngineInfo]) -> tuple[dict[int, str], bool]:
    """The GPU of each engine, and whether no two share one: the first that no engine of its host
    has, where it sees one, as cluster engines may each see another. In turns beyond that."""
    taken: dict[str, list[str]] = {}
    found, own = {}, True
    for engine, info in sorted(engines.items()):
        here = taken.setdefault(info.host, [])
        free = [gpu for gpu in info.gpus if gpu not in here]
        own = own and bool(free)
        if info.gpus:
            found[engine] = free[0] if free else info.gpus[len(here) % len(info.gpus)]
            here.append(found[engine])
    return found, own


def place(engines: dict[int, EngineInfo], backend: str | None) -> tuple[list[Placement], str]:
    """Ranks in the order of engine ids, and one sentence that says what was chosen and why.

    ``backend`` None: NCCL where every rank has a GPU of its own; gloo on CUDA where ranks
    outnumber GPUs (NCCL refuses two ranks on one GPU); gloo on the CPU where there is none.
    Raises SessionError where the backend asked for cannot work.
    """
    per_host = Counter(info.host for info in engines.values())
    have_gpus = all(info.gpus for info in engines.values())
    gpus, own_gpu = _gpus(engines)
    nccl = all(info.nccl for info in engines.values())
    if backend not in (None, "nccl", "gloo"):
        raise SessionError(f"found backend={backend!r}, expected 'nccl', 'gloo' or None")
    if backend == "nccl" and not nccl:
        raise SessionError(
            "found a torch that was built without NCCL on the engines, expected one with it: leave "
            "backend out to get gloo"
        )
    if backend == "nccl" and not (have_gpus and own_gpu):
        counts = sorted({len(info.gpus) for info in engines.values()})
        raise SessionError(
            f"NCCL needs a GPU for each rank, found {counts} GPUs for {dict(per_host)} ranks by "
            "host; leave backend out to get gloo, which runs without"
        )
    chosen = backend or ("nccl" if have_gpus and own_gpu and nccl else "gloo")
    if chosen == "nccl":
        said = "NCCL, one rank for each GPU"
    elif have_gpus and own_gpu:
        why = "" if backend or nccl else ", as this torch has no NCCL"
        said = f"gloo on CUDA tensors, one rank for each GPU{why}"
    elif have_gpus:
        said = "gloo on CUDA tensors, as there are more ranks than GPUs: times are not NCCL's"
    else:
        said = "gloo on the CPU"
    placements = []
    single_host = len(per_host) == 1
    for rank, (engine, info) in enumerate(sorted(engines.items())):
        placements.append(
            Placement(
                rank=rank,
                world_size=len(engines),
                engine=engine,
                backend=chosen,
                device="cuda:0" if have_gpus else "cpu",
                visible_gpu=gpus[engine] if have_gpus else None,
                threads=max(1, info.cores // per_host[info.host]),
                local=single_host,
            )
        )
    return placements, said
