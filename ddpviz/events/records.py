"""Records: one event each, as it lies in memory; the kinds that there are, and their fields."""

from __future__ import annotations

import enum
import struct

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

    #: Issued from C++ with nothing above it that would tell.
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
    #: SyncBatchNorm's statistics in a forward, and their gradients in a backward.
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
    INFERRED = 2  # concluded: as of a trace, which names no cause and no bucket
    PREDICTED = 4  # told before it happened: of what has not run
    NO_SYNC = 8  # require_backward_grad_sync was False in this forward
    NO_GRAD = 16  # gradients were disabled in this forward
    FROM_HOOK = 32  # issued by a comm hook; of BUFFER_SYNC: a buffer hook ran in its place
    DELAYED = 64  # static_graph's first iteration: all buckets reduced after the backward
    ENQUEUED = 128  # the end is when the work was enqueued (CUDA), not when it ran
    FAILED = 256  # the span ended by an exception
    SYNC_DUE = 512  # require_forward_param_sync was True when this forward began
    SINK = 1024  # this forward's output has _DDPSink as its grad_fn
