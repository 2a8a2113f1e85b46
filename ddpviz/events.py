"""The one vocabulary: what a rank can say about its DDP run, and how it is laid out in bytes.

Two things leave a training process:

* **records**: rows of the fixed-size numpy type :data:`RECORD` (52 bytes), one per event;
* **notes**: small frozen dataclasses for what changes rarely (model, plan, configuration, …).

A :class:`Batch` carries both, with a running number per rank so that a reader sees a gap.
Everything downstream (recording, analysis, views) knows this module and nothing of the probe.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import struct
import types
from typing import Any, TypeAlias, Union, get_args, get_origin, get_type_hints

import numpy as np

#: Version of records, notes and batches. A reader refuses what is newer than itself.
VERSION = 1

#: One event. Times are nanoseconds since the Unix epoch (``time.time_ns``); a point event has
#: ``end_ns == begin_ns``; ``end_ns == 0`` means that the end is not known (yet).
#: ``step``: training step, from 0; -1 outside any step (construction).
#: ``iteration``: ordinal of the DDP module's forward that the event belongs to, -1 if none.
#: ``index``, ``sequence``, ``bytes``, ``label``: by kind, see :class:`Kind`; -1 (label 0) if none.
#: ``module``: which DDP module of the process (:class:`Module` note), 255 if none.
#: ``group``: which process group (:class:`Group` note), 255 if none.
RECORD = np.dtype(
    [
        ("begin_ns", "<i8"),
        ("end_ns", "<i8"),
        ("bytes", "<i8"),
        ("step", "<i4"),
        ("iteration", "<i4"),
        ("index", "<i4"),
        ("sequence", "<i4"),
        ("label", "<u2"),
        ("rank", "<u2"),
        ("flags", "<u2"),
        ("kind", "u1"),
        ("cause", "u1"),
        ("module", "u1"),
        ("group", "u1"),
        ("clock", "u1"),
        ("spare", "u1"),
    ]
)
#: ``struct`` format of one :data:`RECORD`, in field order.
RECORD_STRUCT = struct.Struct("<qqqiiiiHHHBBBBBB")
assert RECORD_STRUCT.size == RECORD.itemsize == 52

#: How much a recorder takes down: per step, or per parameter and bucket too, or when each gradient
#: was there on the GPU as well.
LEVELS = ("summary", "default", "detail")

NO_MODULE = 255
NO_GROUP = 255


class Kind(enum.IntEnum):
    """What happened. Each line: what begins it; what ends it; where its time comes from."""

    # Construction of a DDP module (host clock, class-level wraps).
    #: ``DistributedDataParallel.__init__`` entered; left.
    CONSTRUCTION = 1
    #: Step 1: entry of ``__init__``; first later step begins. DERIVED: no function of its own.
    CONSTRUCTION_GROUP = 2
    #: Step 2: ``_build_params_for_reducer`` entered; left. ``index``: number of parameters.
    CONSTRUCTION_COLLECT = 3
    #: Step 3: ``_BucketCapacityConfig.create`` entered; left (torch >= 2.13, absent before).
    CONSTRUCTION_CAPS = 4
    #: Step 4, first half: ``_verify_param_shape_across_processes`` entered; left.
    CONSTRUCTION_VERIFY = 5
    #: Step 4, second half: ``_sync_module_states`` entered; left.
    CONSTRUCTION_SYNC = 6
    #: Step 5: ``_ddp_init_helper`` entered; left. ``index``: number of buckets of the first plan.
    CONSTRUCTION_REDUCER = 7
    #: Step 6: the Reducer stands; ``__init__`` left. DERIVED: no function of its own.
    CONSTRUCTION_OPTIONS = 8

    # One training step (host clock).
    #: The first DDP forward with gradients since the last step begins; the optimizer's step ends.
    #: Or an explicit ``recorder.step()`` block, where one step has several optimizers.
    STEP = 16
    #: ``DDP.forward`` entered; left. Flags NO_SYNC, NO_GRAD, SYNC_DUE, SINK. ``label``: what it
    #: raised, with flag FAILED.
    FORWARD = 17
    #: ``DDP.forward`` entered; ``DDP._run_ddp_forward`` entered: what DDP does before the module.
    PRE_FORWARD = 18
    #: ``DDP._sync_buffers`` entered; left. ``bytes``: of all buffers; ``index``: their number.
    BUFFER_SYNC = 19
    #: ``DDP._run_ddp_forward`` entered; left: the user's module runs here.
    MODULE_FORWARD = 20
    #: ``DDP._run_ddp_forward`` left; ``DDP.forward`` left: what DDP does after the module.
    POST_FORWARD = 21
    #: ``Reducer.prepare_for_backward`` entered; left. Its begin is where DDP's own logger starts
    #: ``backward_compute_time`` and the zero of ``get_backward_stats()``.
    PREPARE_FOR_BACKWARD = 22
    #: The autograd engine was entered; left (finalize included). Once per ``backward()`` or
    #: ``grad()`` that is not nested; ``module``/``iteration``: the one last prepared for it.
    #: ``label``: what it raised, with flag FAILED.
    BACKWARD = 23
    #: A point: the Reducer marked parameter ``index`` ready (``get_backward_stats()``, C++ clock:
    #: on a GPU, when that was enqueued). At level "detail" a second one has the GPU's time.
    GRAD_READY = 24
    #: All gradients are local and final callbacks begin; ``finalize_backward`` has returned
    #: (``queue_callback`` before and after it). ``index``: buckets launched.
    FINALIZE = 25
    #: ``Optimizer.step`` pre hook; post hook. ``label``: the optimizer's class.
    OPTIMIZER = 26
    #: ``Reducer._rebuild_buckets`` entered; left, where it returned True. ``index``: plan version.
    REBUILD = 27
    #: ``register_comm_hook``'s Python callable entered; left. ``index``: bucket's launch order.
    COMM_HOOK = 28
    #: ``DDP._find_common_rank`` entered; left (Join only). ``index``: the rank it chose; ``cause``:
    #: for what, BUFFERS or JOIN (the final model).
    COMMON_RANK = 29
    #: An optimizer steps with gradients of the module that were never reduced: the first backward
    #: began that left them so; the optimizer's step began. ``index``: how many such backwards since
    #: the last reduction or step; ``sequence``: DDP forwards with gradients since the last step;
    #: ``label``: the optimizer's class; flag NO_SYNC: the last of these forwards was in no_sync.
    UNREDUCED = 30

    # Collectives: two points joined by (rank, group, sequence).
    #: A collective is handed to the process group (tap, host clock). ``sequence``: its number in
    #: the group; ``cause``: a :class:`Cause`; ``bytes``: input bytes; ``label``: op and dtype;
    #: ``index``: the bucket's launch order in its backward (cause BUCKET), else -1.
    COLLECTIVE_LAUNCHED = 32
    #: Its future completed (done callback: needs the GIL, so it can be late, never early).
    #: ``begin_ns``: the launch, repeated; ``end_ns``: the completion.
    COLLECTIVE_DONE = 33

    # What the recorder says about itself.
    #: ``index`` records that a reader never received (from batch numbers), at this moment.
    GAP = 48
    #: A configuration was applied (``index``: its version, a :class:`Configuration` note).
    CONFIGURED = 49
    #: A rank failed. ``label``: the error in one line.
    FAILED = 50

    #: Fingerprints were begun; taken: the recorder's own time, in sampled steps only.
    #: ``index``: number of tensors; ``label``: the note's ``what``.
    FINGERPRINT = 65

    # torch.compile (host clock, wraps of Dynamo's functions).
    #: A graph was handed to its backend; the backend returned. ``index``: the Graph note's id;
    #: ``module``: as the note has it. Flag FAILED where it raised. For graphs that another one is
    #: split into as well, so these lie inside their parent's.
    GRAPH = 64
    #: ``torch.compile`` began to compile something (Dynamo's callbacks); ended. ``label``: what set
    #: it off: "dynamo" (a frame ran), "lazy_backward" (a backward ran for the first time), ….
    #: Written when it begins, with an ``end_ns`` of 0, and once more when it has ended.
    COMPILE = 67

    # On a device the records of spans above have its times; this is the host's side of each.
    #: The host began, and ended, to enqueue a span. ``index``: the span's kind.
    HOST = 68

    # Never written so far: what a rank hangs in is a note (:class:`Stall`), as it has a stack.
    STALL = 66


class Cause(enum.IntEnum):
    """Why a collective was issued."""

    UNKNOWN = 0
    #: ``_verify_param_shape_across_processes``: parameter count (all_gather), shapes (broadcast).
    VERIFY = 1
    #: ``_sync_module_states``: parameters and buffers from rank 0, once.
    INITIAL_STATE = 2
    #: The Reducer reduces a bucket (flag FROM_HOOK: through the user's comm hook).
    BUCKET = 3
    #: Module buffers before (or after) a forward.
    BUFFERS = 4
    #: Rank 0's bucket order and sizes, once, when buckets are rebuilt.
    REBUILD_ORDER = 5
    #: Which parameters were used, summed over ranks (``find_unused_parameters``).
    USED_MAP = 6
    #: Uneven inputs: notifications, common rank, shadow collectives of joined ranks.
    JOIN = 7
    SYNC_BATCH_NORM = 8
    #: The user's own call.
    USER = 9
    #: ``optimize_ddp="python_reducer"``: gradients, reduced in the compiled backward or by a hook
    #: of each parameter, and not by the Reducer. ``index``: launch order in the iteration.
    PYTHON_REDUCER = 10


class Clock(enum.IntEnum):
    """Which clock gave the time."""

    HOST = 0  # time.time_ns
    REDUCER = 1  # the Reducer's own C++ clock (system clock), epoch
    CUDA = 2  # events in the device's streams, anchored to the host clock in every step
    PROFILER = 3  # an imported trace


class Flag(enum.IntFlag):
    """How far a number can be trusted, and in which mode it was taken."""

    DERIVED = 1  # computed from measured times, not measured itself
    INFERRED = 2  # concluded from an imported trace
    PREDICTED = 4
    NO_SYNC = 8  # require_backward_grad_sync was False in this forward
    NO_GRAD = 16  # gradients were disabled in this forward
    FROM_HOOK = 32  # issued by a comm hook
    DELAYED = 64  # static_graph's first iteration: all buckets reduced after the backward
    ENQUEUED = 128  # the end is when the work was enqueued (CUDA), not when it ran
    FAILED = 256  # the span ended by an exception
    SYNC_DUE = 512  # require_forward_param_sync was True when this forward began
    SINK = 1024  # this forward's output has _DDPSink as its grad_fn


# --- notes -------------------------------------------------------------------------------------


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
    """A DDP module: ``parameters`` in the Reducer's index order (registration order)."""

    id: int
    name: str
    parameters: tuple[Tensor, ...]
    buffers: tuple[Tensor, ...]
    ignored: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Bucket:
    """One bucket of a plan: parameter indices, size, and the limit at which it was closed.

    The Reducer closes a bucket at >= ``limit_bytes`` *after* adding a tensor, so ``bytes`` may
    exceed the limit by up to one tensor. ``limit_bytes`` is None where torch does not tell.
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

    ``what``: "buckets", "unused parameters", "walk" of a step, "collectives", or of torch.compile
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
    """

    module: int
    step: int
    iteration: int
    time_ns: int
    what: str
    hashes: tuple[str, ...]
    norms: tuple[float | None, ...]
    nonfinite: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Parted:
    """How the module's parameters part from those that its Reducer has had since it was built.

    ``replaced``: names under which there is another tensor now; ``added``: parameters that want a
    gradient and that the Reducer does not have; ``idle``: that it waits for, and that are frozen
    now or in the module no more. Written when it changes, so it holds from ``step`` on.
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
class Compiled:
    """How ``torch.compile`` and a DDP module have been put together, as a graph is compiled.

    ``optimize_ddp``: torch's mode of that name. ``reducer``: who reduces gradients, "C++" or
    "Python". ``backend``: its name. ``order``: "wrap then compile" or "compile then wrap".
    ``compiled_autograd``: whether a backward has been through it. Written at first, which is in the
    constructor where a model was compiled before, and when it changes.
    """

    module: int
    version: int
    time_ns: int
    optimize_ddp: str
    reducer: str
    backend: str
    order: str
    compiled_autograd: bool


@dataclasses.dataclass(frozen=True)
class Argument:
    """An input of a graph that is a parameter: its name in the code, the parameter's index."""

    name: str
    parameter: int


@dataclasses.dataclass(frozen=True)
class Graph:
    """An FX graph, as its backend gets it: noted when compiling it begins (:attr:`Kind.GRAPH`).

    ``id``: from 0 in each process. ``role``: "forward" (of Dynamo), "subgraph" (of ``parent``, by
    DDPOptimizer), "backward" (of compiled autograd, with the hooks traced into it), or "before
    fusion" and "after fusion" (what Inductor's pass that fuses all-reduces was given, and left).
    ``parent``: -1 where there is none. ``module``: the DDP module whose parameters it has, else
    :data:`NO_MODULE`. ``compile_id``: Dynamo's, as "0/1": frame and recompilation. ``function``,
    ``file``, ``line``: whose code it is. ``nodes``: calls in it. ``operations``: their targets in
    order, from the first on. ``arguments``: inputs that are parameters; ``bytes``: of these
    parameters. ``code``: readable. ``cut``: what was left out of ``operations`` and ``code``.
    """

    id: int
    module: int
    parent: int
    time_ns: int
    role: str
    compile_id: str
    backend: str
    function: str
    file: str
    line: int
    nodes: int
    operations: tuple[str, ...]
    arguments: tuple[Argument, ...]
    bytes: int
    code: str
    cut: str


@dataclasses.dataclass(frozen=True)
class Part:
    """What DDPOptimizer makes one bucket, and so one subgraph. ``bytes``: as it counts them, every
    use of a parameter anew. ``extended``: nodes it took in past its cap to find one whose output
    is used outside; ``extended_bytes``: of the parameters of these."""

    nodes: int
    parameters: tuple[int, ...]
    bytes: int
    extended: int
    extended_bytes: int


@dataclasses.dataclass(frozen=True)
class Split:
    """DDPOptimizer's answer for a graph. ``parts``: in the order of the forward; only one of them
    means that the graph was not split. ``cap_bytes``, ``first_cap_bytes``: its limits, of the last
    part and those before it, as it goes backward. ``graphs``: ids of the subgraphs, by part; empty
    where the graph was not split."""

    graph: int
    module: int
    time_ns: int
    cap_bytes: int
    first_cap_bytes: int
    parts: tuple[Part, ...]
    graphs: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class GraphBreak:
    """Dynamo could not go on in a graph. ``type``: Dynamo's own name for it; ``reason``: in full.
    ``module``: the DDP module in whose forward it was, else :data:`NO_MODULE`."""

    module: int
    time_ns: int
    compile_id: str
    type: str
    reason: str
    file: str
    line: int


@dataclasses.dataclass(frozen=True)
class Recompile:
    """Code that had been compiled is compiled again. ``reasons``: guards that failed, one for each
    version there was."""

    module: int
    time_ns: int
    compile_id: str
    function: str
    file: str
    line: int
    reasons: tuple[str, ...]


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


Note: TypeAlias = (
    Label
    | Process
    | Group
    | Module
    | Plan
    | Configuration
    | Failure
    | Unavailable
    | Unused
    | Buffers
    | Fingerprints
    | Parted
    | Strides
    | Projections
    | Environment
    | StateRead
    | Walk
    | Compiled
    | Graph
    | Split
    | GraphBreak
    | Recompile
    | Stall
    | DeviceClock
    | Ended
)
_NOTES: dict[str, Any] = {cls.__name__.lower(): cls for cls in get_args(Note)}
_NESTED: dict[str, dict[Any, Any]] = {
    "parameters": {Module: Tensor},
    "buffers": {Module: Tensor},
    "buckets": {Plan: Bucket},
    "frames": {Walk: Frame},
    "arguments": {Graph: Argument},
    "parts": {Split: Part},
    "stack": {Stall: StackLine},
}


def note_to_json(note: Note) -> dict[str, Any]:
    """A note as a JSON-ready dict; ``"note"`` names its type."""
    return {"note": type(note).__name__.lower(), **dataclasses.asdict(note)}


def note_from_json(data: dict[str, Any]) -> Note:
    """The inverse of :func:`note_to_json`. Unknown fields of newer versions are left out.

    Raises ValueError for a note type or layout this version does not know.
    """
    cls = _NOTES.get(str(data.get("note")))
    if cls is None:
        raise ValueError(
            f"found a note of type {data.get('note')!r}, expected one of {sorted(_NOTES)}"
        )
    values = {}
    try:
        for field in dataclasses.fields(cls):
            value = data[field.name]
            nested = _NESTED.get(field.name, {}).get(cls)
            if nested is not None:
                names = [f.name for f in dataclasses.fields(nested)]
                value = tuple(
                    nested(**{name: _tupled(item[name]) for name in names}) for item in value
                )
            values[field.name] = _tupled(value)
        for name, type_ in _types(cls).items():
            if not _fits(values[name], type_):
                raise ValueError(f"a {cls.__name__} note has {_short(values[name])} as its {name}")
        note: Note = cls(**values)
        return note
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"a note of type {data.get('note')!r} lacks or misshapes {error}"
        ) from None


@functools.cache
def _types(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _fits(value: Any, type_: Any) -> bool:
    """Whether a value read from a file is of an annotated type; a float may be a whole number."""
    origin, arguments = get_origin(type_), get_args(type_)
    if type_ is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in arguments)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(one, arguments[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict)
    if dataclasses.is_dataclass(type_):
        return isinstance(value, type_) and all(  # type: ignore[arg-type]
            _fits(getattr(value, name), inner)
            for name, inner in _types(type_).items()  # type: ignore[arg-type]
        )
    if type_ is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if type_ is int:
        whole = isinstance(value, int) and not isinstance(value, bool)
        return whole and -(2**63) <= value < 2**63
    return isinstance(value, type_)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def _tupled(value: Any) -> Any:
    return tuple(_tupled(item) for item in value) if isinstance(value, list) else value


# --- batches -----------------------------------------------------------------------------------

_MAGIC = b"DDPV"
_HEADER = struct.Struct("<4sHHIII")  # magic, version, rank, sequence, length of notes, rows


@dataclasses.dataclass(frozen=True)
class Batch:
    """What one rank sends at a time: ``sequence`` counts from 0 without gaps per rank."""

    rank: int
    sequence: int
    records: np.ndarray  # dtype RECORD
    notes: tuple[Note, ...] = ()

    def to_bytes(self) -> bytes:
        """One packed message: header, notes as JSON, records as they lie in memory."""
        notes = json.dumps([note_to_json(note) for note in self.notes]).encode()
        header = _HEADER.pack(
            _MAGIC, VERSION, self.rank, self.sequence, len(notes), len(self.records)
        )
        return header + notes + self.records.tobytes()

    @staticmethod
    def from_bytes(data: bytes) -> Batch:
        """The inverse of :meth:`to_bytes`. Raises ValueError for anything else."""
        if len(data) < _HEADER.size or data[:4] != _MAGIC:
            raise ValueError("found bytes that do not begin as a ddpviz batch does")
        _, version, rank, sequence, notes_length, rows = _HEADER.unpack_from(data)
        if version > VERSION:
            raise ValueError(
                f"found a batch of version {version}, expected at most {VERSION}: update ddpviz"
            )
        start = _HEADER.size + notes_length
        if len(data) != start + rows * RECORD.itemsize:
            raise ValueError(
                f"found a batch of {len(data)} bytes, expected {start + rows * RECORD.itemsize}"
            )
        notes = tuple(note_from_json(item) for item in json.loads(data[_HEADER.size : start]))
        records = np.frombuffer(data, RECORD, rows, start)
        return Batch(rank, sequence, records, notes)
