"""Who arrives last at each collective, how often, and how far apart ranks are."""

from __future__ import annotations

import collections
import dataclasses
import math

import numpy as np

from ddpviz.traces.clocks import Clock
from ddpviz.traces.runs import Run

#: A rank is called late where chance would make it, or another, last as often in fewer cases.
_CHANCE = 0.05


@dataclasses.dataclass(frozen=True)
class Skew:
    """One collective of the step, over all launches at which every rank was seen.

    ``name``: "bucket 2", or the cause. ``times``: launches, several a step where a step has
    several. ``spread_ns``, ``worst_ns``: median and largest time from the first rank's arrival to
    the last's. ``last``: how often each rank came last, most often first.
    """

    name: str
    times: int
    spread_ns: float
    worst_ns: float
    last: tuple[tuple[int, int], ...]

    def late(self) -> int | None:
        """The rank that is last more often than chance would make any; None for none."""
        return chronic(self.last, self.times)


@dataclasses.dataclass(frozen=True)
class Arrival:
    """The last rank's at a collective, on the clock of the trace that it is told for.
    ``spread_ns``: how much later than the first's."""

    rank: int
    time_ns: int
    spread_ns: int


def chronic(last: tuple[tuple[int, int], ...], times: int, ranks: int = 2) -> int | None:
    """The rank that was last too often for chance among so many ranks (at least those in
    ``last``): its binomial tail, times the ranks that might have been it, is below 0.05."""
    if not last:
        return None
    rank, often = max(last, key=lambda one: one[1])
    count = max(ranks, len(last))
    each = 1 / count
    tail = sum(
        math.comb(times, n) * each**n * (1 - each) ** (times - n) for n in range(often, times + 1)
    )
    return rank if tail * count < _CHANCE else None


def skews(runs: list[Run], told: list[Clock]) -> list[Skew]:
    """In the order of the step; nothing for a single rank."""
    names: dict[tuple[str, int, int], str] = {}
    for run in runs:
        for one, key in zip(run.collectives, run.numbers(), strict=True):
            said = one.cause.name.lower().replace("_", " ")
            names.setdefault(key, f"bucket {one.bucket}" if one.bucket >= 0 else said)
    spreads: dict[str, list[int]] = collections.defaultdict(list)
    last: dict[str, collections.Counter[int]] = collections.defaultdict(collections.Counter)
    arrived = _arrived(runs, told)
    for key in sorted(arrived, key=lambda key: key[1:]):
        of_ranks = arrived[key]
        spreads[names[key]].append(max(of_ranks.values()) - min(of_ranks.values()))
        last[names[key]][_last(of_ranks)] += 1
    return [
        Skew(
            name,
            len(found),
            float(np.median(found)),
            float(max(found)),
            tuple(last[name].most_common()),
        )
        for name, found in spreads.items()
    ]


def arrivals(runs: list[Run], told: list[Clock], of: Run) -> list[Arrival | None]:
    """For each of a run's collectives; None where not every rank was seen at it, or their clocks
    have nothing in common."""
    arrived = _arrived(runs, told) if all(one.matched for one in told) else {}
    moved_ns = next(one.moved_ns for one in told if one.rank == of.rank)
    found: list[Arrival | None] = []
    for key in of.numbers():
        of_ranks = arrived.get(key)
        if of_ranks is None:
            found.append(None)
            continue
        rank = _last(of_ranks)
        spread_ns = of_ranks[rank] - min(of_ranks.values())
        found.append(Arrival(rank, of_ranks[rank] + moved_ns, spread_ns))
    return found


def _arrived(runs: list[Run], told: list[Clock]) -> dict[tuple[str, int, int], dict[int, int]]:
    """When each rank came to each collective at which all were seen, on the common clock."""
    if len(runs) < 2:
        return {}
    found: dict[tuple[str, int, int], dict[int, int]] = collections.defaultdict(dict)
    for run, clock in zip(runs, told, strict=True):
        for one, key in zip(run.collectives, run.numbers(), strict=True):
            call = one.collective
            time_ns = call.begin_ns if run.on_device and call.begin_ns else call.launch_ns
            found[key][run.rank] = time_ns - clock.moved_ns
    return {key: of_ranks for key, of_ranks in found.items() if len(of_ranks) == len(runs)}


def _last(of_ranks: dict[int, int]) -> int:
    return max(of_ranks, key=lambda rank: of_ranks[rank])
