"""Notes: what changes rarely, and what has names in it. Of torch.compile: :mod:`.compile_notes`."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Label:
    """Text of a label id of this rank. Id 0 is the empty text."""

    id: int
    text: str


@dataclasses.dataclass(frozen=True)
class Process:
    """Who recorded: one per rank and attachment."""

    rank: int
    world_size: int
    pid: int
    hostname: str
    torch: str
    python: str
    device: str
    started_ns: int
    level: str


@dataclasses.dataclass(frozen=True)
class Group:
    """A process group. ``ranks`` are global ranks."""

    id: int
    name: str
    backend: str
    ranks: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A parameter or buffer, without its values."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int


@dataclasses.dataclass(frozen=True)
class Module:
    """A DDP module: ``parameters`` in the Reducer's index order (registration order).

    ``frozen``: those that want no gradient, so the Reducer has not got them, and DDP sends them
    once, with the initial state. ``sparse``: names of parameters whose gradients are sparse.
    ``delayed``: those of ``delay_all_reduce_named_params``, which a hook reduces and no bucket.
    """

    id: int
    name: str
    parameters: tuple[Tensor, ...]
    buffers: tuple[Tensor, ...]
    ignored: tuple[str, ...]
    frozen: tuple[Tensor, ...] = ()
    sparse: tuple[str, ...] = ()
    delayed: tuple[Tensor, ...] = ()


@dataclasses.dataclass(frozen=True)
class Bucket:
    """One bucket of a plan: parameter indices, size, and the limit at which it was closed.

    The Reducer closes a bucket at >= ``limit_bytes`` *after* adding a tensor, so ``bytes`` may
    exceed the limit by up to one tensor. ``limit_bytes`` is None where there is no limit, as in the
    first plan of a module whose buckets will be rebuilt, and where torch does not tell.
    """

    parameters: tuple[int, ...]
    bytes: int
    limit_bytes: int | None


@dataclasses.dataclass(frozen=True)
class Plan:
    """Buckets of a module in launch order, valid from ``iteration`` on.

    ``reason``: "construction", "rebuild" or "attached" (the plan found when recording began).
    """

    module: int
    version: int
    iteration: int
    time_ns: int
    reason: str
    buckets: tuple[Bucket, ...]


@dataclasses.dataclass(frozen=True)
class Configuration:
    """What the user can turn, as DDP has it. ``values`` maps a DDP argument's name to its value."""

    module: int
    version: int
    time_ns: int
    values: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Failure:
    """A rank's exception: in one line, and its traceback."""

    rank: int
    step: int
    time_ns: int
    message: str
    traceback: str


@dataclasses.dataclass(frozen=True)
class Unavailable:
    """What cannot be seen of a module, and why: nothing may be concluded from its absence.

    ``what``: "buckets", "bucket plan", "parameters" (the Reducer's), "comm hook" (when it returns),
    "unused parameters", "walk" of a step, "collectives", "records" and "notes" (of a rank, whose
    file is cut, damaged or not there; its module is :data:`NO_MODULE`), or of torch.compile
    "graphs", "splits", "graph breaks", "recompilations", "compilations", "fusion". ``why``:
    completes "not available here, because".
    """

    module: int
    what: str
    time_ns: int
    why: str


@dataclasses.dataclass(frozen=True)
class Unused:
    """Parameters (indices, ascending) of which this rank had no gradient to give.

    As the Reducer's own map of used parameters has it when it is handed to the process group
    (``find_unused_parameters``, and ``static_graph``'s first iteration): in no backward since the
    last reduction. Written at first and when it changes, so it holds from ``iteration`` on.
    """

    module: int
    iteration: int
    time_ns: int
    parameters: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Buffers:
    """Buffers (names) whose tensor object is another one than at the last sync of buffers."""

    module: int
    iteration: int
    time_ns: int
    reassigned: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Fingerprints:
    """What a rank's tensors held at one moment of a step: one entry each, in the Module's order.

    ``what``: "parameters" and "buffers" (after the step), "gradients" (after the backward that
    reduced them), "applied" (the gradients that the optimizer steps with, where they are not those
    any more, or none were reduced), "buffers before" and "buffers after" (around their sync),
    "initial parameters" and "initial buffers" (as recording begins, step -1). ``hashes``: 16 hex
    digits, equal where the bytes are and else different (as far as 64 bits can tell; of float32 on
    the CPU, where one word differs for certain and several by all likelihood), "" for a tensor that
    is not there (a gradient of None). ``norms``: Euclidean, in float64; None where it is not
    finite, or there is no tensor. ``nonfinite``: how many elements are NaN or infinite.
    ``storages``: in how many pieces of memory they lie, as those that are views of one bucket share
    one; 0 where that was not counted.
    """

    module: int
    step: int
    iteration: int
    time_ns: int
    what: str
    hashes: tuple[str, ...]
    norms: tuple[float | None, ...]
    nonfinite: tuple[int, ...]
    storages: int = 0


@dataclasses.dataclass(frozen=True)
class Parted:
    """How the module's parameters part from those that its Reducer has had since it was built.

    ``replaced``: names under which there is another tensor now, or whose module has become another
    one; ``added``: parameters that want a
    gradient and that the Reducer does not have; ``idle``: that it waits for, and that are frozen
    now or in the module no more. Written when it changes, so it holds from ``step`` on; -1: as
    recording of the module began.
    """

    module: int
    step: int
    time_ns: int
    replaced: tuple[str, ...]
    added: tuple[str, ...]
    idle: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Strides:
    """Parameters whose gradients lie otherwise in memory than in their bucket, so that each is
    copied element by element. ``bytes``: theirs. Written when it changes."""

    module: int
    step: int
    time_ns: int
    names: tuple[str, ...]
    bytes: int


@dataclasses.dataclass(frozen=True)
class Projections:
    """Each bucket's products with a few fixed vectors: linear, so those of a mean are the mean.

    ``what``: "local", as a comm hook written in Python was given the bucket, or "reduced", as the
    backward left it. ``values``: of each bucket in launch order ``len(values) / buckets`` numbers.
    """

    module: int
    step: int
    iteration: int
    time_ns: int
    what: str
    buckets: int
    values: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Environment:
    """Variables of the process's environment that decide about collectives, by name."""

    rank: int
    time_ns: int
    values: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class StateRead:
    """Somebody asked this rank for the module's ``state_dict()``."""

    module: int
    step: int
    iteration: int
    time_ns: int


@dataclasses.dataclass(frozen=True)
class Frame:
    """A call that ran. ``depth``: from 0, of the outermost recorded.

    ``file``: from "torch/" on for torch's own, "" for a builtin of torch's C extension, whose
    ``line`` is 0; else ``line`` is where it was entered: where the function begins, or the yield
    that a generator resumed at. ``function``: with its class from Python 3.11 on. ``called_at``:
    the line of the frame above from which it was called, 0 where that is not torch's or C++.
    """

    depth: int
    file: str
    function: str
    line: int
    called_at: int
    begin_ns: int
    end_ns: int


@dataclasses.dataclass(frozen=True)
class Walk:
    """The Python functions, and builtins of torch, that really ran in one step, as they began."""

    module: int
    step: int
    time_ns: int
    frames: tuple[Frame, ...]


@dataclasses.dataclass(frozen=True)
class StackLine:
    """A Python line that a thread is at. ``text``: of the source, "" where it cannot be read."""

    file: str
    line: int
    function: str
    text: str


@dataclasses.dataclass(frozen=True)
class Stall:
    """A rank is in a collective, or out of any and silent, for longer than the watch's limit.

    ``since_ns``: the collective's launch, else the last time something was recorded; the first
    note comes at the limit, the next ones after twice, four times, … as long, or when the thread is
    at another line. ``group``,
    ``sequence``: of the oldest open collective; :data:`NO_GROUP` and -1 for none. ``device``: what
    NCCL's flight recorder says of it, "" where there is none. ``stack``: of the training thread,
    the innermost call first.
    """

    rank: int
    step: int
    time_ns: int
    since_ns: int
    group: int
    sequence: int
    device: str
    stack: tuple[StackLine, ...]


@dataclasses.dataclass(frozen=True)
class DeviceClock:
    """How a device's times (:attr:`Clock.CUDA`) were put on the host's clock.

    ``resolution_ns``: of the device's events; ``uncertainty_ns``: of an anchor, the longest of
    late; ``drift_ppm``: how much faster the device's clock ran since the note before. It needs no
    correction, as times count from an anchor of the same step.
    """

    rank: int
    time_ns: int
    device: str
    resolution_ns: int
    uncertainty_ns: int
    drift_ppm: float


@dataclasses.dataclass(frozen=True)
class Ended:
    """A rank stopped recording, in order: it launches no more collectives that anyone sees."""

    rank: int
    time_ns: int
