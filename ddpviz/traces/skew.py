"""Who arrives last at each collective, how often, and how far apart ranks are."""

from __future__ import annotations

import collections
import dataclasses

import numpy as np

from ddpviz.traces.clocks import Clock
from ddpviz.traces.runs import Run


@dataclasses.dataclass(frozen=True)
class Skew:
    """One collective of the step, over all steps in which every rank was seen at it.

    ``name``: "bucket 2", or the cause. ``spread_ns``, ``worst_ns``: median and largest time from
    the first rank's arrival to the last's. ``last``: how often each rank came last, most often
    first.
    """

    name: str
    times: int
    spread_ns: float
    worst_ns: float
    last: tuple[tuple[int, int], ...]


def skews(runs: list[Run], told: list[Clock]) -> list[Skew]:
    """In the order of the step; nothing for a single rank."""
    if len(runs) < 2:
        return []
    arrivals: dict[tuple[str, int, int], dict[int, int]] = collections.defaultdict(dict)
    names: dict[tuple[str, int, int], str] = {}
    for run, clock in zip(runs, told, strict=True):
        for one, key in zip(run.collectives, run.numbers(), strict=True):
            call = one.collective
            time_ns = call.begin_ns if run.on_device and call.begin_ns else call.launch_ns
            arrivals[key][run.rank] = time_ns - clock.moved_ns
            said = one.cause.name.lower().replace("_", " ")
            names.setdefault(key, f"bucket {one.bucket}" if one.bucket >= 0 else said)
    spreads: dict[str, list[int]] = collections.defaultdict(list)
    last: dict[str, collections.Counter[int]] = collections.defaultdict(collections.Counter)
    for key in sorted(arrivals, key=lambda key: key[1:]):
        of_ranks = arrivals[key]
        if len(of_ranks) < len(runs):
            continue
        spreads[names[key]].append(max(of_ranks.values()) - min(of_ranks.values()))
        last[names[key]][max(of_ranks, key=lambda rank: of_ranks[rank])] += 1
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
