"""The process-group tap: every collective's launch and end, on the Reducer's default path.

Two ways in, one record out. The Reducer calls its process group from C++, so it gets a
:class:`Tap`, a Python subclass that forwards to the real group; no comm hook, pre-division
intact. Python callers (``dist.all_reduce``) look methods up on the pybind class, so
:func:`watch_python_callers` wraps those. Checked on torch 2.13.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from ddpviz.events import Cause, Flag
from ddpviz.probe import early_hooks, python_reducer, used_map
from ddpviz.probe.dynamo import keep_out

if TYPE_CHECKING:
    from ddpviz.probe.patches import Patches
    from ddpviz.probe.recorder import Recorder
    from ddpviz.probe.state import ModuleState

#: Collectives by method name, with the position of their input tensors. Point-to-point calls are
#: not collectives: they have no place in a group's common order.
_INPUT_POSITION = {
    "allreduce": 0,
    "allreduce_coalesced": 0,
    "broadcast": 0,
    "reduce": 0,
    "barrier": None,
    "allgather": 1,
    "allgather_coalesced": 1,
    "allgather_into_tensor_coalesced": 1,
    "_allgather_base": 1,
    "all_gather_single": 1,
    "all_gather_single_coalesced": 1,
    "gather": 1,
    "scatter": 1,
    "reduce_scatter": 1,
    "_reduce_scatter_base": 1,
    "reduce_scatter_single": 1,
    "reduce_scatter_single_coalesced": 1,
    "reduce_scatter_tensor_coalesced": 1,
    "alltoall": 1,
    "alltoall_base": 1,
    "all_to_all_single": 1,
}
# Plain numbers: an enum's operators are Python, and cost as much as a record.
_ENQUEUED, _FAILED, _FROM_HOOK = int(Flag.ENQUEUED), int(Flag.FAILED), int(Flag.FROM_HOOK)
_STRIDED = torch.strided
_BUCKET, _USED_MAP = int(Cause.BUCKET), int(Cause.USED_MAP)
_METHODS = tuple(name for name in _INPUT_POSITION if hasattr(dist.ProcessGroup, name))
_ORIGINALS: dict[str, Any] = {name: getattr(dist.ProcessGroup, name) for name in _METHODS}


class Tap(dist.ProcessGroup):
    """Forwards every collective of one DDP module to ``inner``, and tells the recorder.

    It must not answer "gloo" or "nccl" as its backend name: DDP's Logger then asks for a backend
    object that only the inner group has.
    """

    def __init__(self, inner: Any, recorder: Recorder, state: ModuleState):
        super().__init__(inner.rank(), inner.size())  # type: ignore[call-arg]
        self.inner = inner
        self.recorder: Recorder | None = recorder
        self.state = state
        # dist.get_rank(group) and friends look a group up in c10d's tables. pg_names is left
        # alone: destroy_process_group walks it and would shut this one down as well.
        for table in _tables():
            if inner in table:
                table[self] = table[inner]

    def take_name(self) -> bool:
        """Stand in for the inner group also where C++ looks it up by its name, as functional
        collectives do. False where this torch has no way to.

        Where another module of the group stands in for it already, that goes on."""
        return _rename(self.inner, self) or self._named_already()

    def _named_already(self) -> bool:
        name: Any = self.getGroupName()
        try:
            found = torch._C._distributed_c10d._resolve_process_group(name)
        except (AttributeError, RuntimeError):
            return False
        return isinstance(found, Tap) and found.recorder is self.recorder

    def release(self) -> None:
        """Stop recording and leave c10d's tables. Calls still forward."""
        recorder, self.recorder = self.recorder, None
        _rename(self, python_reducer.heir(recorder, self))
        for table in _tables():
            table.pop(self, None)

    def getBackendName(self) -> str:
        return "ddpviz"

    def getGroupName(self) -> str:
        return str(self.inner.group_name)

    def setGroupName(self, name: str) -> None:
        """The inner group has its name already."""

    @property
    def _device_types(self) -> Any:
        return self.inner._device_types


def _rename(old: Any, new: Any) -> bool:
    """Have the name of a group mean another one; nothing where it does not mean ``old``."""
    c10d = torch._C._distributed_c10d
    if not all(
        hasattr(c10d, f"_{verb}_process_group") for verb in ("resolve", "register", "unregister")
    ):
        return False
    try:
        name: Any = old.getGroupName() if isinstance(old, Tap) else old.group_name
        if c10d._resolve_process_group(name) is not old:
            return False
    except RuntimeError:  # it has been destroyed
        return False
    c10d._unregister_process_group(name)
    c10d._register_process_group(name, new)
    return True


def _tables() -> list[dict[Any, Any]]:
    world = getattr(dist.distributed_c10d, "_world", None)
    names = ("pg_map", "pg_group_ranks", "pg_backend_config")
    return [getattr(world, name) for name in names if hasattr(world, name)]


def _forwarder(name: str) -> Callable[..., Any]:
    original = _ORIGINALS[name]

    def method(self: Tap, *args: Any, **kwargs: Any) -> Any:
        recorder = self.recorder
        if recorder is None:
            return original(self.inner, *args, **kwargs)
        return _observe(recorder, self.state, name, self.inner, args, kwargs)

    return _opaque(method, name)


def _opaque(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Dynamo must not trace into the tap: it cannot represent a group written in Python.

    Two marks instead of ``torch._dynamo.disable``: that one's wrappers cost as much as the rest
    of the tap, on every collective, and hide the caller's frame.
    """
    method.__name__ = name
    method._torchdynamo_disable = True  # type: ignore[attr-defined]
    keep_out(method, _observe)
    return method


#: What else a caller may ask of a group: handed on, not recorded (point to point, bookkeeping).
_HANDED_ON = (
    "send",
    "recv",
    "recv_anysource",
    "monitored_barrier",
    "_get_backend",
    "_get_sequence_number_for_group",
    "_start_coalescing",
    "_end_coalescing",
    "_wait_for_pending_works",
)


def _handing_on(name: str) -> Callable[..., Any]:
    def method(self: Tap, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.inner, name)(*args, **kwargs)

    method.__name__ = name
    return method


def watch_python_callers(recorder: Recorder, patches: Patches) -> None:
    """Record collectives that Python code issues on any group that is not a tap."""
    for name in _METHODS:

        def make(original: Any, name: str = name) -> Callable[..., Any]:
            def method(self: Any, *args: Any, **kwargs: Any) -> Any:
                if recorder.closed:
                    return original(self, *args, **kwargs)
                return _observe(recorder, None, name, self, args, kwargs)

            return _opaque(method, name)

        patches.wrap(dist.ProcessGroup, name, make)


def _observe(
    recorder: Recorder, state: ModuleState | None, name: str, inner: Any, args: Any, kwargs: Any
) -> Any:
    # Whoever called the group: the engine, Python code, or nobody: CUDA's autograd threads have
    # no Python frames of their own.
    caller: Any = sys._getframe(1).f_back
    from_cpp = caller is None or caller.f_code.co_name == "_engine_run_backward"
    if (
        from_cpp and state is not None and name == "allreduce" and not state.python_reducer
    ):  # the Reducer: nothing to search
        tensors = args[0]
        # Gradients are never integers; the used-parameter map is an int32 tensor.
        cause, flags = _BUCKET, 0
        if tensors[0].dtype is torch.int32:
            cause = _USED_MAP
            used_map.launched(recorder, state, tensors[0])
    else:
        tensors = _inputs(name, args)
        cause, flags, state = _cause(recorder, state, caller, from_cpp)
    dtype, nbytes, ended = None, 0, 0
    for tensor in tensors:
        nbytes += tensor.nbytes if tensor.layout is _STRIDED else _sparse_bytes(tensor)
    if tensors:
        dtype = tensors[0].dtype
        if tensors[0].is_cuda:
            # The future completes when the work is enqueued; the stream runs it later.
            ended = _ENQUEUED
    begin_ns = recorder.now()
    completed, unwatched = recorder.collectives.launched(
        state, inner, name, dtype, nbytes, cause, flags, begin_ns, ended
    )
    try:
        work = _ORIGINALS[name](inner, *args, **kwargs)
    except BaseException:
        unwatched(_FAILED)
        raise
    if work is None:  # NCCL's, that are not asynchronous: the current stream waits for it
        completed(_PASSED)
        return work
    try:
        future = work.get_future()
    except (AttributeError, RuntimeError, ValueError):  # no work, or a backend without futures
        unwatched(None)
        return work
    _add_done_callback(future, completed)
    return work


class _Passed:
    """In place of the future of what has none and did not fail."""

    def value(self) -> None:
        return None


_PASSED = _Passed()
# The C method itself: torch.futures adds a wrapper that prints what a callback raises; ours cannot.
_add_done_callback = torch._C.Future.add_done_callback


def _sparse_bytes(tensor: torch.Tensor) -> int:
    values, indices = tensor._values(), tensor._indices()
    return values.nbytes + indices.nbytes


def _inputs(name: str, args: tuple[Any, ...]) -> list[torch.Tensor]:
    position = _INPUT_POSITION[name]
    if position is None or position >= len(args):
        return []
    value = args[position]
    if isinstance(value, torch.Tensor):
        return [value]
    if name == "allreduce" or name == "broadcast":
        return list(value)
    found: list[torch.Tensor] = []
    for item in value:
        found.extend(item if isinstance(item, (list, tuple)) else [item])
    return found


def _cause(
    recorder: Recorder, state: ModuleState | None, frame: Any, from_cpp: bool
) -> tuple[int, int, ModuleState | None]:
    """Why, with which reservation, and for which DDP module this collective is issued.

    ``frame``: of the caller.
    """
    local = recorder.local
    if local.cause:
        return local.cause, 0, state
    if state is not None and state.python_reducer and state.in_backward:
        reduces, of = python_reducer.reduces(recorder, frame)
        if reduces:
            return Cause.PYTHON_REDUCER, 0, of
    if from_cpp:
        return Cause.UNKNOWN, 0, state
    if local.hook_bucket >= 0:  # a hook may use any group, so the module is the hook's
        return Cause.BUCKET, _FROM_HOOK, local.hook_state
    early = early_hooks.bucket_of(recorder, frame)
    if early is not None:
        return Cause.BUCKET, _FROM_HOOK, early[1]
    depth = 0
    while frame is not None and depth < 12:
        if frame.f_code.co_filename.endswith("torch/nn/modules/_functions.py"):
            return Cause.SYNC_BATCH_NORM, 0, state
        frame, depth = frame.f_back, depth + 1
    hooked = state if state is not None else recorder.modules.in_backward_with_hook()
    if hooked is not None and hooked.in_backward and hooked.python_hook:
        # A hook's continuation, or what an early hook sends before it asks its bucket anything.
        return Cause.BUCKET, _FROM_HOOK | Flag.INFERRED, hooked
    return Cause.USER, 0, state


for _name in _METHODS:
    setattr(Tap, _name, _forwarder(_name))
for _name in _HANDED_ON:
    if hasattr(dist.ProcessGroup, _name):
        setattr(Tap, _name, _handing_on(_name))
