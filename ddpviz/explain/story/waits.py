"""When a rank stood still for collectives, and how much of that for a rank that came later."""

from __future__ import annotations

import collections
import dataclasses
import math

import numpy as np

from ddpviz.events import Cause
from ddpviz.traces.causes import Caused
from ddpviz.traces.runs import Run
from ddpviz.traces.shares import busy, covered
from ddpviz.traces.skew import Arrival, chronic

#: What DDP sends before its module and waits for there, whatever else computes.
_BEFORE = (Cause.BUFFERS, Cause.REBUILD_ORDER)


@dataclasses.dataclass(frozen=True)
class Wait:
    """For the collectives of a cause, of one forward or backward, or for one between steps.

    ``ns``: how long, NaN where the trace doesn't tell; ``late_ns``: of that, until the last rank
    came, which was ``late`` (-1 for none but the rank itself, or where that is not known).
    ``calls``: what was waited for. ``last``: the last rank to come, this one or another, and how
    long after the first; None where not all were seen.
    """

    step: int
    iteration: int
    cause: Cause
    ns: float
    late_ns: float
    late: int
    calls: tuple[Caused, ...]
    last: Arrival | None

    @property
    def own_ns(self) -> float:
        """What it took once all ranks were there."""
        return self.ns - self.late_ns


def waits(run: Run, finalized_ns: dict[int, int], arrived: list[Arrival | None]) -> list[Wait]:
    """In the order of launches. ``finalized_ns``: by iteration, when the last gradient had been
    computed; ``arrived``: of each of the run's collectives."""
    groups: dict[tuple[int, Cause, int], list[tuple[Caused, Arrival | None]]]
    groups = collections.defaultdict(list)
    for one, arrival in zip(run.collectives, arrived, strict=True):
        if one.cause == Cause.USED_MAP:
            continue  # beside the buckets
        alone = one.collective.position if one.iteration < 0 else -1
        groups[one.iteration, one.cause, alone].append((one, arrival))
    computing = busy(run)[0]
    return [_wait(run, key[0], mine, finalized_ns, computing) for key, mine in groups.items()]


def _wait(
    run: Run,
    iteration: int,
    mine: list[tuple[Caused, Arrival | None]],
    finalized_ns: dict[int, int],
    computing: np.ndarray,
) -> Wait:
    first = mine[0][0]
    calls = tuple(one for one, _ in mine)
    known = not run.enqueued and all(one.collective.end_ns for one in calls)
    last = max((one for _, one in mine if one), key=lambda one: one.spread_ns, default=None)
    if not known:
        return Wait(first.step, iteration, first.cause, math.nan, 0.0, -1, calls, last)
    begin_ns, end_ns = run.during(list(calls))
    if first.cause == Cause.BUCKET:
        begin_ns = finalized_ns.get(iteration, end_ns)
    whole_ns = float(max(end_ns - begin_ns, 0))
    if first.cause not in (*_BEFORE, Cause.BUCKET):
        low = np.searchsorted(computing[:, 1], begin_ns, side="right")
        high = max(np.searchsorted(computing[:, 0], end_ns), low)
        whole_ns -= covered(np.clip(computing[low:high], begin_ns, end_ns))
    until_ns, late = 0, -1
    for one, arrival in mine:
        # One that had ended before the last rank came waited for no one: so can a sender's.
        waited = arrival is not None and arrival.time_ns <= one.collective.end_ns
        if waited and arrival is not None and arrival.time_ns > until_ns:
            until_ns, late = arrival.time_ns, arrival.rank
    late_ns = float(min(max(until_ns - begin_ns, 0), whole_ns)) if late != run.rank else 0.0
    return Wait(
        first.step,
        iteration,
        first.cause,
        whole_ns,
        late_ns,
        late if late_ns else -1,
        calls,
        last,
    )


@dataclasses.dataclass(frozen=True)
class Lateness:
    """Who came late. ``chronic``: the rank that was last more than chance would make any, None
    for none. ``last``: in how many of ``steps`` each rank was last, most first."""

    chronic: int | None
    last: tuple[tuple[int, int], ...]
    steps: int


def lateness(waited: list[Wait], ranks: int) -> Lateness:
    """Of every step, the rank that was last by most, over all its collectives."""
    of_step: dict[int, collections.Counter[int]] = {}
    for one in waited:
        if one.last is not None and one.step >= 0:
            counted = of_step.setdefault(one.step, collections.Counter())
            counted[one.last.rank] += one.last.spread_ns
    each = [max(counted.items(), key=lambda one: one[1]) for counted in of_step.values()]
    last = collections.Counter(rank for rank, _ in each)
    return Lateness(chronic(each, ranks), tuple(last.most_common()), len(of_step))


def in_phase(waited: list[Wait], backward: bool) -> dict[int, float]:
    """By step, how long its backwards, or its forwards, stood still, in ns."""
    found: dict[int, float] = collections.defaultdict(float)
    for one in waited:
        if one.iteration >= 0 and (one.cause == Cause.BUCKET) == backward:
            found[one.step] += one.ns
    return found
