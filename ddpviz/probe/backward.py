"""A backward: its span, gradient-ready times, bucket order, finalize.

Nothing here runs per parameter: ready times come from the Reducer's own statistics, read once
after each backward.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ddpviz.events import NO_GROUP, RECORD, Clock, Flag, Kind, Module

if TYPE_CHECKING:
    from ddpviz.probe.patches import Patches
    from ddpviz.probe.recorder import Recorder
    from ddpviz.probe.state import ModuleState


#: The running graph task of this thread, -1 outside any; also on CUDA's autograd threads.
_graph_task: Callable[[], int] = getattr(torch._C, "_current_graph_task_id", lambda: -1)


def watch(recorder: Recorder, patches: Patches) -> None:
    """Wrap the autograd engine's one entry from Python."""
    for owner in (torch.autograd, torch.autograd.graph):
        patches.wrap(owner, "_engine_run_backward", lambda call: _backward(recorder, call))


def _backward(recorder: Recorder, call: Callable[..., Any]) -> Callable[..., Any]:
    local = recorder.local

    def _engine_run_backward(*args: Any, **kwargs: Any) -> Any:
        states = recorder.states()
        if recorder.closed or not states or local.in_backward or _graph_task() != -1:
            return call(*args, **kwargs)  # nested: a reentrant checkpoint's own backward
        for state in states:
            state.in_backward = True
        local.in_backward = True
        begin_ns = time.time_ns()
        flags = 0
        try:
            return call(*args, **kwargs)
        except BaseException:
            flags = Flag.FAILED
            raise
        finally:
            end_ns = time.time_ns()
            local.in_backward = False
            for state in states:
                state.in_backward = False
                _keep_ready_times(recorder, state, end_ns)
            last = max(states, key=lambda state: state.prepared_ns)
            recorder.write(
                Kind.BACKWARD,
                begin_ns,
                end_ns,
                iteration=last.backward_iteration,
                flags=flags,
                module=last.id,
            )

    return _engine_run_backward


def _keep_ready_times(recorder: Recorder, state: ModuleState, end_ns: int) -> None:
    """What the Reducer's statistics say after this backward; expanded off this thread."""
    ddp = state.ddp()
    if ddp is None or state.prepared_ns == 0:
        return
    stats = ddp.reducer.get_backward_stats()
    before, state.last_stats = state.last_stats, stats
    if stats != before and recorder.level != "summary":
        recorder.ready_times.append(
            (
                state,
                before,
                stats,
                state.prepared_ns,
                end_ns,
                recorder.current_step,
                state.backward_iteration,
            )
        )


def expand_ready_times(
    state: ModuleState,
    before: list[int],
    stats: list[int],
    prepared_ns: int,
    end_ns: int,
    step: int,
    iteration: int,
) -> np.ndarray:
    """GRAD_READY records of one backward.

    A value that did not change is stale (no_sync, unused parameter, static_graph's first
    iteration), so it is left out rather than shown with a wrong time.
    """
    now = np.array(stats, np.int64)
    if not len(state.ready) == len(now) == len(before):
        return state.ready[:0]  # the Reducer's parameters are not known by name here
    fresh = (now != np.array(before, np.int64)) & (now > 0) & (now <= end_ns - prepared_ns)
    rows = state.ready[fresh]
    rows["begin_ns"] = rows["end_ns"] = now[fresh] + prepared_ns
    rows["step"] = step
    rows["iteration"] = iteration
    return rows


def ready_rows(rank: int, module_id: int, module: Module) -> np.ndarray:
    """GRAD_READY records of every parameter, complete but for time, step and iteration."""
    rows = np.zeros(len(module.parameters), RECORD)
    rows["bytes"] = [parameter.bytes for parameter in module.parameters]
    rows["index"] = np.arange(len(rows))
    rows["sequence"] = -1
    rows["rank"] = rank
    rows["kind"] = Kind.GRAD_READY
    rows["module"] = module_id
    rows["group"] = NO_GROUP
    rows["clock"] = Clock.REDUCER
    return rows


def bucket_launched(recorder: Recorder, state: ModuleState, begin_ns: int, nbytes: int) -> int:
    """The Reducer reduces its next bucket. Returns the bucket's launch order.

    At the first one of a backward, finalize is bracketed: the Reducer queues it as an engine
    callback later than this, and a callback queued from within ours runs after it.
    """
    index = state.launched_buckets
    ddp = state.ddp()
    if state.plan is not None and getattr(ddp, "skip_all_reduce_unused_params", False):
        sizes = [bucket.bytes for bucket in state.plan.buckets]
        while index < len(sizes) - 1 and sizes[index] != nbytes:
            index += 1
    state.launched_buckets = index + 1
    if state.first_launch_ns == 0:
        state.first_launch_ns = begin_ns
        state.delayed = is_delayed(state)
        _bracket_finalize(recorder, state)
    return index


def is_delayed(state: ModuleState) -> bool:
    """static_graph reduces everything after the backward in its first synced iteration."""
    return state.synced_backwards == 0 and bool(getattr(state.ddp(), "static_graph", False))


def _bracket_finalize(recorder: Recorder, state: ModuleState) -> None:
    delayed = state.delayed
    iteration, step = state.backward_iteration, recorder.current_step
    launch_ns = state.first_launch_ns
    queue = torch.autograd.Variable._execution_engine.queue_callback

    def write(begin_ns: int, flags: int) -> None:
        state.synced_backwards += 1
        state.synced_in_step = True
        recorder.write(
            Kind.FINALIZE,
            begin_ns,
            time.time_ns(),
            step=step,
            iteration=iteration,
            index=state.launched_buckets,
            flags=flags,
            module=state.id,
        )

    def before() -> None:
        if delayed:  # the delayed reduction and finalize are one callback, queued before ours
            write(launch_ns, Flag.DELAYED)
            return
        begin_ns = time.time_ns()
        queue(lambda: write(begin_ns, 0))

    try:
        queue(before)
    except RuntimeError:  # outside any backward: a hook that is run by hand
        return
