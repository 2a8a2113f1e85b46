"""Why each collective of a trace was issued, told from where it was launched and what it moved."""

from __future__ import annotations

import bisect
import collections
import dataclasses

import numpy as np

from ddpviz.events import Cause
from ddpviz.traces.columns import Trace
from ddpviz.traces.comms import Collective
from ddpviz.traces.forwards import of_forwards, within
from ddpviz.traces.phases import Iteration, Phases


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
    norms = _batch_norms(trace)
    told: dict[int, tuple[Cause, int]] = {
        position: (cause, -1)
        for position, cause in of_forwards(trace, phases, in_forward, norms).items()
    }
    for number, mine in in_backward.items():
        told |= _of_backward(phases.iterations[number], mine, norms)
    first_ns = min((it.forward.begin_ns for it in phases.iterations), default=0)
    told |= _of_construction([one for one in found if one.launch_ns < first_ns], told)
    told |= _outside(found, of, told, phases)
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
    buckets = [one for one in reduced if not within(one, norms)]
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


def _outside(
    found: list[Collective],
    of: list[tuple[int, bool]],
    told: dict[int, tuple[Cause, int]],
    phases: Phases,
) -> dict[int, tuple[Cause, int]]:
    """What no forward, backward or constructor launched: DDP itself issues none there, but for
    Join, whose ranks shadow those of the others once they have no more inputs."""
    if not phases.iterations:
        return {}
    last = phases.iterations[-1]
    end_ns = max(last.forward.end_ns, last.backward.span.end_ns if last.backward else 0)
    joining = any(cause == Cause.JOIN for cause, _ in told.values())
    first_ns = phases.iterations[0].forward.begin_ns
    return {
        one.position: (Cause.JOIN if joining and one.launch_ns > end_ns else Cause.USER, -1)
        for one, (number, _) in zip(found, of, strict=True)
        if number < 0 and one.position not in told and one.launch_ns > first_ns
    }


def _batch_norms(trace: Trace) -> np.ndarray:
    """Begins and ends of rows of SyncBatchNorm, forward and backward, as pairs."""
    at = trace.named(lambda name: "SyncBatchNorm" in name)
    return np.stack([trace.begin_ns[at], trace.end_ns[at]], axis=1)
