"""Who arrives last at each collective, how often, and how far apart ranks are."""

from __future__ import annotations

import collections
import dataclasses
import math

import numpy as np

from ddpviz.traces.clocks import Clock
from ddpviz.traces.runs import Run

#: A rank is called late where chance would make one as late in fewer cases than this.
_CHANCE = 0.05
#: Of so many steps every way in which it may have come is counted; of more, as if Gaussian.
_EXACT = 12


@dataclasses.dataclass(frozen=True)
class Skew:
    """One collective of the step, over all steps in which every rank was seen at it.

    ``name``: "bucket 2", or the cause. ``times``: steps; of several such collectives in a step
    the one counts to which ranks came farthest apart. ``spread_ns``, ``worst_ns``: median and
    largest time from the first rank's arrival to the last's. ``last``: in how many steps each rank
    came last, most often first. ``late``: the rank that is last more than chance would make any,
    see :func:`chronic`; None for none.
    """

    name: str
    times: int
    spread_ns: float
    worst_ns: float
    last: tuple[tuple[int, int], ...]
    late: int | None


@dataclasses.dataclass(frozen=True)
class Arrival:
    """The last rank's at a collective, on the clock of the trace that it is told for.
    ``spread_ns``: how much later than the first's."""

    rank: int
    time_ns: int
    spread_ns: int


def chronic(last: list[tuple[int, int]], ranks: int) -> int | None:
    """The rank that was last too often, and by too much, for chance; None for none.

    ``last``: of each step, the last rank and how much later than the first it came. By chance each
    of ``ranks`` would be that rank in a step; how rarely it would then gather as much as the
    rank that gathered most, times the ranks that it might have been, has to be below 0.05.
    """
    gathered: collections.Counter[int] = collections.Counter()
    for rank, spread_ns in last:
        gathered[rank] += spread_ns
    if not gathered:
        return None
    rank, most = max(gathered.items(), key=lambda one: one[1])
    spreads = np.array([spread_ns for _, spread_ns in last], float)
    each = 1 / ranks
    if len(spreads) <= _EXACT:
        ways = (np.arange(2 ** len(spreads))[:, None] >> np.arange(len(spreads))) & 1
        often = ways.sum(1)
        chance = each**often * (1 - each) ** (len(spreads) - often)
        tail = float(chance[ways @ spreads >= most * (1 - 1e-9)].sum())
    else:
        width = math.sqrt(2 * each * (1 - each) * float((spreads**2).sum()))
        tail = math.erfc((most - each * float(spreads.sum())) / width) / 2 if width else 1.0
    return rank if tail * ranks < _CHANCE else None


def skews(runs: list[Run], told: list[Clock]) -> list[Skew]:
    """In the order of the step; nothing for a single rank, or where steps may be mispaired."""
    if any(one.mispaired for one in told):
        return []
    names: dict[tuple[str, int, int], str] = {}
    for run in runs:
        for one, key in zip(run.collectives, run.numbers(), strict=True):
            said = one.cause.name.lower().replace("_", " ")
            names.setdefault(key, f"bucket {one.bucket}" if one.bucket >= 0 else said)
    arrived = _arrived(runs, told)
    widest: dict[str, dict[int, tuple[int, int]]] = collections.defaultdict(dict)
    for key in sorted(arrived, key=lambda key: key[1:]):
        of_ranks, of_steps = arrived[key], widest[names[key]]
        rank = _last(of_ranks)
        spread_ns = of_ranks[rank] - min(of_ranks.values())
        # Where there is no step, each counts for itself.
        step = key[1] if key[1] >= 0 else -1 - key[2]
        of_steps[step] = max(of_steps.get(step, (-1, -1)), (spread_ns, rank))
    return [
        Skew(
            name,
            len(found),
            float(np.median([spread_ns for spread_ns, _ in found.values()])),
            float(max(spread_ns for spread_ns, _ in found.values())),
            tuple(collections.Counter(rank for _, rank in found.values()).most_common()),
            chronic([(rank, spread_ns) for spread_ns, rank in found.values()], len(runs)),
        )
        for name, found in widest.items()
    ]


def arrivals(runs: list[Run], told: list[Clock], of: Run) -> list[Arrival | None]:
    """For each of a run's collectives; None where not every rank was seen at it, their clocks have
    nothing in common, or their steps may be mispaired."""
    together = all(one.matched and not one.mispaired for one in told)
    arrived = _arrived(runs, told) if together else {}
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
