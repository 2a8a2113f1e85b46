"""Why each collective that a DDP forward launched was issued, and what tells it.

Where the trace has Python's functions, those above the launch tell. Else where it stands does: DDP
sends before its module's first operation, buffers by ``_broadcast_coalesced``, which flattens them
first, and a rebuild's order from tensors that it has just copied. What neither tells is unknown.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ddpviz.events import Cause
from ddpviz.traces.columns import Category, Trace
from ddpviz.traces.comms import Collective, operation
from ddpviz.traces.phases import Iteration, Phases, Span, python_function

#: The rebuild tells the others the buckets' order and their sizes.
_OF_REBUILD = 2
#: What ``_broadcast_coalesced`` does before each broadcast; a concatenation before torch 1.12.
_FLATTENS = ("aten::flatten_dense_tensors", "aten::cat")
#: What DDP's own Python calls before the module: all that is not here is the module's.
_OWN = {
    *_FLATTENS,
    "aten::unflatten_dense_tensors",
    *(
        f"aten::{name}"
        for name in (
            "as_strided", "copy_", "detach", "detach_", "empty", "empty_strided", "fill_", "item",
            "lift_fresh", "narrow", "ones", "reshape", "slice", "tensor", "to", "view", "zero_",
            "zeros", "_local_scalar_dense", "_to_copy",
        )
    ),
}  # fmt: skip


def of_forwards(
    trace: Trace, phases: Phases, launched: dict[int, list[Collective]], norms: np.ndarray
) -> dict[int, Cause]:
    """By the position of each collective. ``launched``: by the iteration whose forward did.
    ``norms``: begins and ends of SyncBatchNorm's rows."""
    python = _Functions(trace)
    told: dict[int, Cause] = {}
    rebuilding: list[list[Collective]] = []
    joining = False
    for number, mine in sorted(launched.items()):
        it = phases.iterations[number]
        for one in mine:
            if one.operation != "broadcast" and within(one, norms):
                told[one.position] = Cause.SYNC_BATCH_NORM
        left = [one for one in mine if one.position not in told]
        if python:
            told |= {one.position: python.cause(one, it.forward) for one in left}
            continue
        before = _Before(trace, it)
        for one in left:
            joining |= one.operation == "allreduce" and before.joins(one, joining)
            told[one.position] = _cause(before, one, joining)
        order = [one for one in left if before.orders(one)]
        if len(order) == _OF_REBUILD:
            rebuilding.append(order)
    # A module rebuilds its buckets once: what comes in more steps is not that.
    most = max(np.unique([it.step for it in phases.iterations], return_counts=True)[1], default=0)
    if len(rebuilding) <= most:
        told |= {one.position: Cause.REBUILD_ORDER for order in rebuilding for one in order}
    return told


def within(one: Collective, spans: np.ndarray) -> bool:
    """Whether it was launched in one of the spans (n, 2)."""
    return bool(((spans[:, 0] <= one.launch_ns) & (one.launch_ns <= spans[:, 1])).any())


class _Functions:
    """What Python's own rows say: in which function a collective was launched."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._any = bool((trace.category == Category.PYTHON).any())
        self._modules = trace.named(lambda name: name.startswith("nn.Module: "), Category.PYTHON)
        self._of = [
            (cause, trace.named(_is(*functions), Category.PYTHON))
            for cause, functions in (
                (Cause.REBUILD_ORDER, ("_rebuild_buckets",)),
                (
                    Cause.BUFFERS,
                    ("_sync_buffers", "_sync_params", "_sync_module_buffers",
                     "_distributed_broadcast_coalesced", "_broadcast_coalesced"),
                ),
                (
                    Cause.JOIN,
                    ("notify_join_context", "_find_common_rank",
                     "_check_global_requires_backward_grad_sync"),
                ),
            )
        ]  # fmt: skip

    def __bool__(self) -> bool:
        return self._any

    def cause(self, one: Collective, forward: Span) -> Cause:
        if self._hold(self._modules, one, forward.begin_ns):
            return Cause.USER
        for cause, positions in self._of:
            if self._hold(positions, one, forward.begin_ns):
                return cause
        return Cause.USER

    def _hold(self, positions: np.ndarray, one: Collective, since_ns: int) -> bool:
        trace = self._trace
        begins_ns = trace.begin_ns[positions]
        return bool(
            (
                (begins_ns <= one.launch_ns)
                & (begins_ns >= since_ns)
                & (trace.end_ns[positions] >= one.launched_ns)
                & (trace.thread[positions] == one.thread)
            ).any()
        )


def _is(*functions: str) -> Callable[[str], bool]:
    def wanted(name: str) -> bool:
        found = python_function(name)
        return found is not None and found[1] in functions

    return wanted


class _Before:
    """What a forward's thread had done before each launch, of its outermost operations."""

    def __init__(self, trace: Trace, it: Iteration) -> None:
        low, high = np.searchsorted(trace.begin_ns, (it.forward.begin_ns, it.forward.end_ns))
        at = np.arange(low, high)
        at = at[
            (trace.thread[at] == it.forward.thread)
            & (trace.category[at] == Category.OPERATION)
            & (trace.end_ns[at] < it.forward.end_ns)  # in old traces the forward is one, too
        ]
        reached = np.maximum.accumulate(trace.end_ns[at]) if len(at) else at
        outer = np.ones(len(at), bool)
        outer[1:] = trace.begin_ns[at[1:]] >= reached[:-1]
        self._names = [trace.text(position) for position in at[outer].tolist()]
        self._begins_ns = trace.begin_ns[at[outer]]
        self._module_ns = next(
            (
                int(begin_ns)
                for name, begin_ns in zip(self._names, self._begins_ns, strict=True)
                if name not in _OWN and not operation(name)
            ),
            it.forward.end_ns,
        )

    def in_module(self, one: Collective) -> bool:
        return one.launch_ns > self._module_ns

    def flattens(self, one: Collective) -> bool:
        return self._last(one) in _FLATTENS

    def orders(self, one: Collective) -> bool:
        """Whether it may tell the buckets' order."""
        before = one.operation == "broadcast" and not self.in_module(one)
        return before and one.dtype in ("int32", "") and self._last(one) == "aten::copy_"

    def joins(self, one: Collective, joining: bool) -> bool:
        """Whether ranks tell each other who has joined: a flag, or a rank, from Python."""
        flag = ("aten::ones", "aten::zeros") if not joining else ("aten::ones", "aten::detach_")
        return not self.in_module(one) and one.elements in (1, -1) and self._last(one) in flag

    def _last(self, one: Collective) -> str:
        at = int(np.searchsorted(self._begins_ns, one.launch_ns, side="left")) - 1
        return self._names[at] if at >= 0 else ""


def _cause(before: _Before, one: Collective, joining: bool) -> Cause:
    if before.in_module(one):
        return Cause.UNKNOWN if before.flattens(one) else Cause.USER
    if one.operation == "broadcast":
        return Cause.BUFFERS if before.flattens(one) else Cause.UNKNOWN
    return Cause.JOIN if joining and before.joins(one, joining) else Cause.UNKNOWN
