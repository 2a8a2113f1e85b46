"""DDP's constructor in its six steps, with a tap as its process group. Checked on torch 2.13."""

from __future__ import annotations

import inspect
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.parallel import distributed as ddp_module

from ddpviz.events import Cause, Flag, Kind
from ddpviz.probe.state import in_cause

if TYPE_CHECKING:
    from ddpviz.probe.patches import Patches
    from ddpviz.probe.recorder import Recorder


def watch(recorder: Recorder, patches: Patches) -> None:
    patches.wrap(DDP, "__init__", lambda call: _construct(recorder, call))
    for owner, name, kind, cause in (
        (DDP, "_build_params_for_reducer", Kind.CONSTRUCTION_COLLECT, Cause.UNKNOWN),
        (
            ddp_module,
            "_verify_param_shape_across_processes",
            Kind.CONSTRUCTION_VERIFY,
            Cause.VERIFY,
        ),
        (ddp_module, "_sync_module_states", Kind.CONSTRUCTION_SYNC, Cause.INITIAL_STATE),
        (DDP, "_ddp_init_helper", Kind.CONSTRUCTION_REDUCER, Cause.UNKNOWN),
    ):
        patches.wrap(owner, name, _construction_step(recorder, kind, cause))
    capacity = getattr(ddp_module, "_BucketCapacityConfig", None)
    if capacity is not None:
        patches.wrap(
            capacity,
            "create",
            _construction_step(recorder, Kind.CONSTRUCTION_CAPS, Cause.UNKNOWN),
        )
    patches.wrap(
        DDP,
        "_register_delay_all_reduce_hook",
        lambda call: in_cause(recorder, Cause.INITIAL_STATE, call),
    )
    patches.wrap(DDP, "__getstate__", lambda call: _getstate(recorder, call))
    patches.wrap(
        dist, "_compute_bucket_assignment_by_size", lambda call: _assignment(recorder, call)
    )


def _construct(recorder: Recorder, call: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(call)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(self, *args, **kwargs)
        if recorder.closed:
            call(self, *args, **kwargs)
            return
        # A device mesh brings its own group, and DDP refuses both: tapped after construction.
        if bound.arguments.get("device_mesh") is not None or not dist.is_initialized():
            call(self, *args, **kwargs)
            recorder.adopt(self)
            return
        group = bound.arguments.get("process_group")
        state = recorder.modules.new(dist.group.WORLD if group is None else group)
        bound.arguments["process_group"] = state.tap
        local = recorder.local
        outer, local.state = local.state, state
        begin_ns = time.time_ns()
        try:
            call(*bound.args, **bound.kwargs)
        except BaseException:
            recorder.modules.release(state)
            raise
        finally:
            local.state = outer
        end_ns = time.time_ns()
        if not hasattr(self, "reducer"):  # all-reduce of all parameters delayed: DDP builds none
            self.process_group = state.inner
            recorder.modules.release(state)
            return
        recorder.modules.built(self, state, "construction")
        recorder.fingerprints.initial(state)
        common = {"step": -1, "module": state.id}
        recorder.write(Kind.CONSTRUCTION, begin_ns, end_ns, **common)
        first = min((b for b, _ in state.steps_ns), default=end_ns)
        last = max((e for _, e in state.steps_ns), default=end_ns)
        derived = {"flags": Flag.DERIVED, **common}
        recorder.write(Kind.CONSTRUCTION_GROUP, begin_ns, first, **derived)
        recorder.write(Kind.CONSTRUCTION_OPTIONS, last, end_ns, **derived)

    return __init__


def _getstate(recorder: Recorder, call: Callable[..., Any]) -> Callable[..., Any]:
    def __getstate__(self: Any) -> Any:
        # DDP pickles only with the default group, which the tap stands in for.
        state = recorder.modules.of(self)
        if state is None or self.process_group is not state.tap:
            return call(self)
        self.process_group = state.inner
        try:
            return call(self)
        finally:
            self.process_group = state.tap

    return __getstate__


def _construction_step(
    recorder: Recorder, kind: Kind, cause: Cause
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def make(call: Callable[..., Any]) -> Callable[..., Any]:
        caused = in_cause(recorder, cause, call) if cause else call

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            state = recorder.local.state
            begin_ns = time.time_ns()
            # Join, too, sends a module's state by these functions, at its end.
            result = (call if recorder.local.cause else caused)(*args, **kwargs)
            if state is not None and not recorder.closed:
                end_ns = time.time_ns()
                state.steps_ns.append((begin_ns, end_ns))
                index = -1
                if kind == Kind.CONSTRUCTION_COLLECT:
                    index = len(result[0])
                    state.parameters = [weakref.ref(parameter) for parameter in result[0]]
                    recorder.modules.described(args[0], state)  # it may fail in what comes next
                elif kind == Kind.CONSTRUCTION_REDUCER:
                    index = len(state.initial_limits_bytes or ())
                recorder.write(kind, begin_ns, end_ns, step=-1, index=index, module=state.id)
            return result

        return wrapper

    return make


def _assignment(recorder: Recorder, call: Callable[..., Any]) -> Callable[..., Any]:
    def _compute_bucket_assignment_by_size(*args: Any, **kwargs: Any) -> Any:
        result = call(*args, **kwargs)
        state = recorder.local.state
        if state is not None and state.plan is None:
            state.initial_limits_bytes = list(reversed(result[1]))  # DDP reverses both lists
        return result

    return _compute_bucket_assignment_by_size
