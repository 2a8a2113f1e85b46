"""A DDP forward in its parts: buffer sync, rebuild, the module, preparing for backward."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils._pytree import tree_leaves

from ddpviz.events import NO_GROUP, Buffers, Cause, Flag, Kind
from ddpviz.probe import describe
from ddpviz.probe.dynamo import keep_out
from ddpviz.probe.state import in_cause

if TYPE_CHECKING:
    from ddpviz.probe.patches import Patches
    from ddpviz.probe.recorder import Recorder


_FORWARD, _PRE, _MODULE, _POST = (
    int(kind) for kind in (Kind.FORWARD, Kind.PRE_FORWARD, Kind.MODULE_FORWARD, Kind.POST_FORWARD)
)
_NO_SYNC, _NO_GRAD, _FAILED = int(Flag.NO_SYNC), int(Flag.NO_GRAD), int(Flag.FAILED)
_SYNC_DUE, _SINK, _FROM_HOOK = int(Flag.SYNC_DUE), int(Flag.SINK), int(Flag.FROM_HOOK)
_PREPARE = int(Kind.PREPARE_FOR_BACKWARD)
_NBYTES = operator.attrgetter("nbytes")  # a fifth of numel() * element_size()


def watch(recorder: Recorder, patches: Patches) -> None:
    patches.wrap(DDP, "forward", lambda call: _forward(recorder, call))
    patches.wrap(DDP, "_run_ddp_forward", lambda call: _run_ddp_forward(recorder, call))
    patches.wrap(DDP, "_sync_buffers", lambda call: _sync_buffers(recorder, call))
    patches.wrap(dist.Reducer, "_rebuild_buckets", lambda call: _rebuild(recorder, call))
    patches.wrap(dist.Reducer, "prepare_for_backward", lambda call: _prepare(recorder, call))


def _forward(recorder: Recorder, call: Callable[..., Any]) -> Callable[..., Any]:
    """The whole, and its parts: before, in and after the user's module.

    One write for all: between two kernels, entering Python costs more than what is done there.
    """
    rank, no_group = recorder.rank, NO_GROUP

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        state = recorder.modules.of(self)
        if state is None:
            return call(self, *args, **kwargs)
        begin_ns = recorder.now()
        recorder.optimizers.forget()
        recorder.steps.forward_begins(state, begin_ns)
        flags = 0 if self.require_backward_grad_sync else _NO_SYNC
        if self.require_forward_param_sync:
            flags |= _SYNC_DUE
        if not torch.is_grad_enabled():
            flags |= _NO_GRAD
        else:
            state.backward_iteration = state.iteration
            state.forward_ns, state.forward_step = begin_ns, recorder.steps.current
            state.awaits_backward = True
            state.unreduced.forwards += 1
            state.unreduced.no_sync = bool(flags & _NO_SYNC)
        iteration, step, module = state.iteration, recorder.steps.current, state.id
        state.enter_forward()
        failed, label = _FAILED, 0
        try:
            result = call(self, *args, **kwargs)
            failed = 0
            if (self.find_unused_parameters or self.static_graph) and _through_sink(result):
                flags |= _SINK
            return result
        except BaseException as error:
            label = recorder.label(describe.error_text(error))
            raise
        finally:
            end_ns = recorder.now()
            state.in_forward = False
            rows = [
                (begin_ns, end_ns, 0, step, iteration, -1, -1, label, rank, flags | failed,
                 _FORWARD, 0, module, no_group, 0)
            ]  # fmt: skip
            spans = []
            if state.module_span is not None and recorder.detailed:
                inner_ns, outer_ns = state.module_span
                spans = [(_PRE, begin_ns, inner_ns), (_MODULE, inner_ns, outer_ns)]
                if not failed:
                    spans.append((_POST, outer_ns, end_ns))
            if state.prepare_span is not None:
                spans.append((_PREPARE, *state.prepare_span))
            rows += [
                (begin, end, 0, step, iteration, -1, -1, 0, rank, 0, kind, 0, module, no_group, 0)
                for kind, begin, end in spans
            ]
            recorder.write_rows(*rows)

    return forward


def _through_sink(output: Any) -> bool:
    """Whether DDP has put its ``_DDPSink`` behind the forward's output."""
    tensors = [output] if isinstance(output, torch.Tensor) else tree_leaves(output)
    # With a dataclass or an RRef as output no tensor is found, and none is claimed.
    return any(
        type(tensor.grad_fn).__name__ == "_DDPSinkBackward"
        for tensor in tensors
        if isinstance(tensor, torch.Tensor)
    )


def _run_ddp_forward(recorder: Recorder, call: Callable[..., Any]) -> Callable[..., Any]:
    def _run_ddp_forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        begin_ns = recorder.now()
        result = call(self, *args, **kwargs)
        state = recorder.modules.of(self)
        if state is not None:
            state.module_span = (begin_ns, recorder.now())
        return result

    return _run_ddp_forward


def _sync_buffers(recorder: Recorder, call: Callable[..., Any]) -> Callable[..., Any]:
    call = in_cause(recorder, Cause.BUFFERS, call)

    def _sync_buffers(self: Any) -> Any:
        state = recorder.modules.of(self)
        if state is None:
            return call(self)
        before, fingerprints = self.named_module_buffers, recorder.fingerprints
        if fingerprints.due:
            fingerprints.buffers(state, "buffers before")
        begin_ns = recorder.now()
        result = call(self)
        end_ns = recorder.now()
        buffers = self.modules_buffers
        recorder.write(
            Kind.BUFFER_SYNC,
            begin_ns,
            end_ns,
            nbytes=_bytes(buffers),
            iteration=state.iteration,
            index=len(buffers),
            flags=_FROM_HOOK if self.__dict__.get("buffer_hook") is not None else 0,
            module=state.id,
        )
        if fingerprints.due:
            # What a hook leaves running after the forward is waited for in finalize.
            if describe.buffer_hook(self) == "post_forward":
                state.buffers_after_backward = True
            else:
                fingerprints.buffers(state, "buffers after")
        # DDP looks its buffers up anew at every sync, as they can be reassigned.
        if not all(map(operator.is_, before.values(), buffers)):
            now = self.named_module_buffers
            names = tuple(name for name in now if now[name] is not before.get(name))
            recorder.note(Buffers(state.id, state.iteration, begin_ns, names), False)
        return result

    return _sync_buffers


def _bytes(buffers: list[torch.Tensor]) -> int:
    try:
        return sum(map(_NBYTES, buffers))
    except (RuntimeError, NotImplementedError):  # a sparse one, which a buffer hook may take
        return sum(buffer.numel() * buffer.element_size() for buffer in buffers)


def _rebuild(recorder: Recorder, call: Callable[..., Any]) -> Callable[..., Any]:
    call = in_cause(recorder, Cause.REBUILD_ORDER, call)

    def _rebuild_buckets(self: Any) -> Any:
        begin_ns = time.time_ns()
        rebuilt = call(self)
        state = recorder.modules.of_reducer(self)
        if rebuilt and state is not None:
            end_ns = time.time_ns()
            ddp = state.ddp()
            if ddp is not None:
                recorder.modules.plan(ddp, state, "rebuild")
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
        state = recorder.modules.of_reducer(self)
        if state is None:
            return call(self, *args, **kwargs)
        # The Reducer takes its own zero as the first thing it does.
        state.prepared_ns = begin_ns = recorder.now()
        state.launched_buckets = 0
        state.first_launch_ns = 0
        result = call(self, *args, **kwargs)
        state.prepare_span = (begin_ns, recorder.now())
        if not state.in_forward:  # by hand: no forward is there to write it
            recorder.write(
                Kind.PREPARE_FOR_BACKWARD,
                *state.prepare_span,
                iteration=state.iteration,
                module=state.id,
            )
        return result

    return prepare_for_backward


keep_out(_through_sink, _bytes)
