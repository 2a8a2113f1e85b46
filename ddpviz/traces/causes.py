"""Why each collective of a trace was issued, told from where it was launched and what it moved."""

from __future__ import annotations

import bisect
import collections
import dataclasses
from collections.abc import Callable

import numpy as np

from ddpviz.events import Cause
from ddpviz.traces.columns import Category, Trace
from ddpviz.traces.comms import Collective
from ddpviz.traces.phases import Iteration, Phases, python_function

#: The rebuild tells the others the buckets' order and their sizes.
_OF_REBUILD = 2


@dataclasses.dataclass(frozen=True)
class Caused:
    """``iteration``: position of the forward it belongs to, -1 for none. ``bucket``: launch order
    in its backward, -1 where it reduces none."""

    collective: Collective
    cause: Cause
    bucket: int
    iteration: int
    step: int


def causes(trace: Trace, found: list[Collective], phases: Phases) -> list[Caused]:
    """One for each collective, in their order."""
    begins = [it.forward.begin_ns for it in phases.iterations]
    of = [_iteration(phases, begins, one) for one in found]
    in_forward: dict[int, list[Collective]] = collections.defaultdict(list)
    in_backward: dict[int, list[Collective]] = collections.defaultdict(list)
    for one, (number, backward) in zip(found, of, strict=True):
        if number >= 0:
            (in_backward if backward else in_forward)[number].append(one)
    told: dict[int, tuple[Cause, int]] = {}
    usual = _usual_broadcasts(in_forward)
    norms, python = _batch_norms(trace), _Functions(trace)
    for mine in in_forward.values():
        told |= _of_forward(python, mine, usual, norms)
    for number, mine in in_backward.items():
        told |= _of_backward(phases.iterations[number], mine, norms)
    first_ns = min((it.forward.begin_ns for it in phases.iterations), default=0)
    told |= _of_construction([one for one in found if one.launch_ns < first_ns], told)
    return [
        Caused(
            one,
            *told.get(one.position, (Cause.UNKNOWN, -1)),
            iteration=number,
            step=_step(phases, one, number),
        )
        for one, (number, _) in zip(found, of, strict=True)
    ]


def _step(phases: Phases, one: Collective, number: int) -> int:
    return phases.iterations[number].step if number >= 0 else phases.step_at(one.launch_ns)


def _iteration(phases: Phases, begins: list[int], one: Collective) -> tuple[int, bool]:
    """Which iteration, and whether its backward. ``begins``: of all forwards, in order."""
    at = bisect.bisect_right(begins, one.launch_ns) - 1
    if at < 0:
        return -1, False
    forward, backward = phases.iterations[at].forward, phases.iterations[at].backward
    if one.launch_ns <= forward.end_ns and forward.thread == one.thread:
        return at, False
    if backward is not None and backward.span.begin_ns <= one.launch_ns <= backward.span.end_ns:
        return at, True
    return -1, False


def _usual_broadcasts(in_forward: dict[int, list[Collective]]) -> int:
    """How many broadcasts most forwards that have any have: those of buffers."""
    counts = collections.Counter(
        sum(one.operation == "broadcast" for one in mine) for mine in in_forward.values()
    )
    counts.pop(0, None)
    most = max(counts.values(), default=0)
    return min((count for count, times in counts.items() if times == most), default=0)


def _of_forward(
    python: _Functions, mine: list[Collective], usual: int, norms: np.ndarray
) -> dict[int, tuple[Cause, int]]:
    told = {}
    sent = [one for one in mine if one.operation == "broadcast"]
    known = {one.position: python.cause(one) for one in sent}
    if not any(known.values()):
        integers = [one for one in sent if one.dtype == "int32"]
        if len(integers) >= _OF_REBUILD:
            known |= {one.position: Cause.REBUILD_ORDER for one in integers[:_OF_REBUILD]}
        elif len(sent) == usual + _OF_REBUILD and not any(one.dtype for one in sent):
            known |= {one.position: Cause.REBUILD_ORDER for one in sent[:_OF_REBUILD]}
    for one in mine:
        if one.operation == "broadcast":
            told[one.position] = known[one.position] or Cause.BUFFERS, -1
        elif _within(one, norms):
            told[one.position] = Cause.SYNC_BATCH_NORM, -1
        else:
            told[one.position] = Cause.USER, -1
    return told


class _Functions:
    """What Python's own rows say: in which function a collective was launched."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._rebuild = trace.named(_is("_rebuild_buckets"), Category.PYTHON)
        self._buffers = trace.named(_is("_broadcast_coalesced", "_sync_buffers"), Category.PYTHON)

    def cause(self, one: Collective) -> Cause | None:
        if self._hold(self._rebuild, one):
            return Cause.REBUILD_ORDER
        return Cause.BUFFERS if self._hold(self._buffers, one) else None

    def _hold(self, positions: np.ndarray, one: Collective) -> bool:
        trace = self._trace
        return bool(
            (
                (trace.begin_ns[positions] <= one.launch_ns)
                & (trace.end_ns[positions] >= one.launched_ns)
                & (trace.thread[positions] == one.thread)
            ).any()
        )


def _is(*functions: str) -> Callable[[str], bool]:
    def wanted(name: str) -> bool:
        found = python_function(name)
        return found is not None and found[1] in functions

    return wanted


def _of_backward(
    iteration: Iteration, mine: list[Collective], norms: np.ndarray
) -> dict[int, tuple[Cause, int]]:
    told: dict[int, tuple[Cause, int]] = {}
    reduced = []
    for one in mine:
        if one.operation in ("allreduce", "reducescatter"):
            reduced.append(one)
        else:
            told[one.position] = Cause.USER, -1
    if iteration.searched and len(reduced) > 1:
        last = reduced[-1]
        if last.dtype in ("int32", ""):
            told[last.position] = Cause.USED_MAP, -1
            reduced.pop()
    buckets = [one for one in reduced if not _within(one, norms)]
    for one in reduced:
        told[one.position] = (
            (Cause.BUCKET, buckets.index(one)) if one in buckets else (Cause.SYNC_BATCH_NORM, -1)
        )
    return told


def _of_construction(
    before: list[Collective], told: dict[int, tuple[Cause, int]]
) -> dict[int, tuple[Cause, int]]:
    """The constructor's: all ranks' parameter counts, their shapes, then the state."""
    found = {}
    stage = 0
    for one in before:
        if one.position in told:
            continue
        if stage == 0 and one.operation == "allgather":
            found[one.position], stage = (Cause.VERIFY, -1), 1
        elif stage == 1 and one.operation == "broadcast":
            found[one.position], stage = (Cause.VERIFY, -1), 2
        elif stage == 2 and one.operation == "broadcast":
            found[one.position] = Cause.INITIAL_STATE, -1
        else:
            stage = 0
    return found


def _batch_norms(trace: Trace) -> np.ndarray:
    """Begins and ends of rows of SyncBatchNorm, forward and backward, as pairs."""
    at = trace.named(lambda name: "SyncBatchNorm" in name)
    return np.stack([trace.begin_ns[at], trace.end_ns[at]], axis=1)


def _within(one: Collective, norms: np.ndarray) -> bool:
    return bool(((norms[:, 0] <= one.launch_ns) & (one.launch_ns <= norms[:, 1])).any())
