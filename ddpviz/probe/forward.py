"""A DDP forward in its parts: buffer sync, rebuild, the module, preparing for backward."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from ddpviz.events import Cause, Flag, Kind
from ddpviz.probe.state import in_cause

if TYPE_CHECKING:
    from ddpviz.probe.patches import Patches
    from ddpviz.probe.recorder import Recorder


def watch(recorder: Recorder, patches: Patches) -> None:
    patches.wrap(DDP, "forward", lambda call: _forward(recorder, call))
    for name, kind in (
        ("_pre_forward", Kind.PRE_FORWARD),
        ("_run_ddp_forward", Kind.MODULE_FORWARD),
        ("_post_forward", Kind.POST_FORWARD),
    ):
        patches.wrap(DDP, name, _part(recorder, kind))
    patches.wrap(DDP, "_sync_buffers", lambda call: _sync_buffers(recorder, call))
    patches.wrap(dist.Reducer, "_rebuild_buckets", lambda call: _rebuild(recorder, call))
    patches.wrap(dist.Reducer, "prepare_for_backward", lambda call: _prepare(recorder, call))


def _forward(recorder: Recorder, call: Callable[..., Any]) -> Callable[..., Any]:
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        state = recorder.state_of(self)
        if state is None:
            return call(self, *args, **kwargs)
        begin_ns = time.time_ns()
        recorder.forward_begins(state, begin_ns)
        flags = 0 if self.require_backward_grad_sync else int(Flag.NO_SYNC)
        if not torch.is_grad_enabled():
            flags |= Flag.NO_GRAD
        else:
            state.backward_iteration = state.iteration
        iteration = state.iteration
        try:
            return call(self, *args, **kwargs)
        except BaseException:
            flags |= Flag.FAILED
            raise
        finally:
            recorder.write(
                Kind.FORWARD,
                begin_ns,
                time.time_ns(),
                iteration=iteration,
                flags=flags,
                module=state.id,
            )

    return forward


def _part(recorder: Recorder, kind: Kind) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def make(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            state = recorder.state_of(self)
            if state is None:
                return call(self, *args, **kwargs)
            begin_ns = time.time_ns()
            result = call(self, *args, **kwargs)
            recorder.write(
                kind, begin_ns, time.time_ns(), iteration=state.iteration, module=state.id
            )
            return result

        return wrapper

    return make


def _sync_buffers(recorder: Recorder, call: Callable[..., Any]) -> Callable[..., Any]:
    call = in_cause(recorder, Cause.BUFFERS, call)

    def _sync_buffers(self: Any) -> Any:
        state = recorder.state_of(self)
        if state is None:
            return call(self)
        begin_ns = time.time_ns()
        result = call(self)
        buffers = self.modules_buffers
        recorder.write(
            Kind.BUFFER_SYNC,
            begin_ns,
            time.time_ns(),
            nbytes=sum(buffer.numel() * buffer.element_size() for buffer in buffers),
            iteration=state.iteration,
            index=len(buffers),
            module=state.id,
        )
        return result

    return _sync_buffers


def _rebuild(recorder: Recorder, call: Callable[..., Any]) -> Callable[..., Any]:
    call = in_cause(recorder, Cause.REBUILD_ORDER, call)

    def _rebuild_buckets(self: Any) -> Any:
        begin_ns = time.time_ns()
        rebuilt = call(self)
        state = recorder.state_of_reducer(self)
        if rebuilt and state is not None:
            end_ns = time.time_ns()
            ddp = state.ddp()
            if ddp is not None:
                recorder.plan(ddp, state, "rebuild")
            recorder.write(
                Kind.REBUILD,
                begin_ns,
                end_ns,
                iteration=state.iteration,
                index=state.plan_version,
                module=state.id,
            )
        return rebuilt

    return _rebuild_buckets


def _prepare(recorder: Recorder, call: Callable[..., Any]) -> Callable[..., Any]:
    def prepare_for_backward(self: Any, *args: Any, **kwargs: Any) -> Any:
        state = recorder.state_of_reducer(self)
        if state is None:
            return call(self, *args, **kwargs)
        # The Reducer takes its own zero as the first thing it does.
        state.prepared_ns = begin_ns = time.time_ns()
        state.launched_buckets = 0
        state.first_launch_ns = 0
        result = call(self, *args, **kwargs)
        recorder.write(
            Kind.PREPARE_FOR_BACKWARD,
            begin_ns,
            time.time_ns(),
            iteration=state.iteration,
            module=state.id,
        )
        return result

    return prepare_for_backward
