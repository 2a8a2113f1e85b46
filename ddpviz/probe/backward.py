"""A backward: its span, gradient-ready times, bucket order, finalize.

Nothing here runs per parameter: ready times come from the Reducer's own statistics, read once
after each backward.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ddpviz.events import NO_GROUP, Flag, Kind
from ddpviz.probe import structure, unreduced
from ddpviz.probe.describe import error_text
from ddpviz.probe.dynamo import traces
from ddpviz.probe.packed import PACKED_READY

if TYPE_CHECKING:
    from ddpviz.probe.patches import Patches
    from ddpviz.probe.recorder import Recorder
    from ddpviz.probe.state import ModuleState


#: The running graph task of this thread, -1 outside any; also on CUDA's autograd threads.
_graph_task: Callable[[], int] = getattr(torch._C, "_current_graph_task_id", lambda: -1)
_queue_callback = torch.autograd.Variable._execution_engine.queue_callback
_FAILED, _DELAYED, _FINALIZE = int(Flag.FAILED), int(Flag.DELAYED), int(Kind.FINALIZE)


def watch(recorder: Recorder, patches: Patches) -> None:
    """Wrap the autograd engine's one entry from Python."""
    for owner in (torch.autograd, torch.autograd.graph):
        patches.wrap(owner, "_engine_run_backward", lambda call: _backward(recorder, call))


def _backward(recorder: Recorder, call: Callable[..., Any]) -> Callable[..., Any]:
    local, rank, kind, no_group = recorder.local, recorder.rank, int(Kind.BACKWARD), NO_GROUP

    def _engine_run_backward(*args: Any, **kwargs: Any) -> Any:
        states = recorder.modules.states()
        if recorder.closed or not states or local.in_backward or _graph_task() != -1:
            return call(*args, **kwargs)  # nested: a reentrant checkpoint's own backward
        if traces():  # AOTAutograd's, in the forward that compiles
            return call(*args, **kwargs)
        recorder.backward_of = _of(states, recorder.steps.current)
        for state in states:
            state.in_backward = True
            if state.python_reducer:  # nothing prepares it
                state.launched_buckets = 0
        reduced = [state.synced_backwards for state in states]
        marked = [unreduced.marks(state) for state in states]
        local.in_backward, local.finalized = True, []
        begin_ns = recorder.now()
        flags, label = _FAILED, 0
        try:
            result = call(*args, **kwargs)
            flags = 0
            return result
        except BaseException as error:
            label = recorder.label(error_text(error))
            raise
        finally:
            local.in_backward = False
            end_ns = recorder.now()
            last = max(states, key=lambda state: max(state.prepared_ns, state.forward_ns))
            for state in states:
                state.in_backward = state.awaits_backward = False
            if recorder.steps.reduced_ns:
                recorder.steps.reduced_ns = end_ns
            recorder.write_rows(
                *local.finalized,
                (begin_ns, end_ns, 0, recorder.steps.current, last.backward_iteration, -1, -1,
                 label, rank, flags, kind, 0, last.id, no_group, 0),
            )  # fmt: skip
            if recorder.detailed:
                for state, before in zip(states, reduced, strict=True):
                    _write_ready_times(recorder, state, end_ns, state.synced_backwards > before)
            if not flags:
                reducing = [
                    state
                    for state, before in zip(states, reduced, strict=True)
                    if state.synced_backwards > before
                ]
                for state, before, marks in zip(states, reduced, marked, strict=True):
                    if state.synced_backwards > before:
                        unreduced.reduced(state)
                        structure.look(recorder, state, True)
                        if recorder.fingerprints.due:
                            recorder.fingerprints.gradients(state)
                    elif unreduced.left(state, marks, begin_ns, reducing):
                        structure.look(recorder, state, False)

    return _engine_run_backward


def _of(states: list[ModuleState], step: int) -> ModuleState | None:
    """The module whose gradients a backward brings: the only one with a forward since the backward
    before, else in the step. None where torch does not tell."""
    found = [state for state in states if state.awaits_backward]
    found = found or [state for state in states if state.forward_step == step]
    return found[0] if len(found) == 1 else None


def _write_ready_times(recorder: Recorder, state: ModuleState, end_ns: int, reduced: bool) -> None:
    """GRAD_READY records of the backward that ended, from the Reducer's statistics.

    A value that did not change is stale (no_sync, unused parameter, static_graph's first
    iteration), so it is left out rather than shown with a wrong time. But where everything was
    ``reduced``, and no parameter can be unused, it was as long to the ns as the time before.
    """
    ddp = state.ddp()
    prepared_ns = state.prepared_ns
    if ddp is None or prepared_ns == 0:
        return
    times: list[int] = ddp.reducer.get_backward_stats()
    before, state.last_stats = state.last_stats, times
    if not times or len(times) != len(before):
        return
    longest = end_ns - prepared_ns
    if reduced and not (ddp.find_unused_parameters or ddp.static_graph):
        before = [0] * len(times)
    if any(map(operator.eq, times, before)) or min(times) <= 0 or max(times) > longest:
        times = [
            time if time != old and 0 < time <= longest else 0
            for time, old in zip(times, before, strict=True)
        ]
        if not any(times):
            return
    recorder.write_ready(
        (prepared_ns, end_ns, 0, recorder.steps.current, state.backward_iteration, len(times), -1,
         0, recorder.rank, 0, PACKED_READY, 0, state.id, NO_GROUP, 0),
        times,
    )  # fmt: skip


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
    delayed, local = state.delayed, recorder.local
    iteration, step = state.backward_iteration, recorder.steps.current
    launch_ns = state.first_launch_ns

    def write(begin_ns: int, flags: int) -> None:
        state.synced_backwards += 1
        state.synced_in_step = True
        recorder.steps.reduced_ns = end_ns = recorder.now()
        row = (
            begin_ns, end_ns, 0, step, iteration, state.launched_buckets, -1, 0,
            recorder.rank, flags, _FINALIZE, 0, state.id, NO_GROUP, 0,
        )  # fmt: skip
        if local.in_backward:
            local.finalized.append(row)
        else:  # another thread of the engine, or a backward that Python did not begin
            recorder.write_rows(row)

    def before() -> None:
        if delayed:  # the delayed reduction and finalize are one callback, queued before ours
            write(launch_ns, _DELAYED)
            return
        begin_ns = recorder.now()
        _queue_callback(lambda: write(begin_ns, 0))

    try:
        _queue_callback(before)
    except RuntimeError:  # outside any backward: a hook that is run by hand
        return
