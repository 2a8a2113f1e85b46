"""All ranks on one clock: what the ends of the collectives they share say of their clocks."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from ddpviz.traces.comms import Collective
from ddpviz.traces.runs import Run

#: No rank has the result of these before every rank has given its part.
_TOGETHER = ("allreduce", "allgather", "alltoall", "barrier")
#: No crystal is so far off: what grows faster is late threads.
_MOST_DRIFT = 2e-3


@dataclasses.dataclass(frozen=True)
class Clock:
    """How a rank's clock stands to that of the lowest rank.

    ``offset_ns``: how far it is ahead, by the median of ``matched`` collectives' ends;
    ``residual_ns``: the median distance from that median, so how well it is known; ``worst_ns``:
    the largest. ``moved_ns``: what was subtracted from its times. That is the offset where it is
    more than its residual. Ranks of one host (``one_host``: both traces name it and an epoch) have
    one clock already, so there it must be contradicted, too: most collectives that end on all
    ranks together ended on one rank before the other came to them. ``mispaired``: it is, but
    by half a step or more of traces that don't number their steps and overlap as they are: its
    steps may be others, so nothing was moved. ``drift_ppm``: how much faster it runs, where a
    line through the offsets leaves less than half of the residual; NaN elsewhere, and where it is
    one clock.
    """

    rank: int
    offset_ns: float
    residual_ns: float
    worst_ns: float
    matched: int
    moved_ns: int
    one_host: bool = False
    mispaired: bool = False
    drift_ppm: float = math.nan


def clocks(runs: list[Run]) -> list[Clock]:
    """One per rank, in the order of ranks. The reference has an offset of 0."""
    in_order = sorted(runs, key=lambda run: run.rank)
    if not in_order:
        return []
    reference = _ends(in_order[0])
    return [
        Clock(run.rank, 0.0, 0.0, 0.0, len(reference), 0)
        if run is in_order[0]
        else _clock(run, reference, in_order[0])
        for run in in_order
    ]


def _clock(run: Run, reference: dict[tuple[str, str, int, int], Collective], of: Run) -> Clock:
    mine = _ends(run)
    shared = sorted(mine.keys() & reference.keys())
    if not shared:
        return Clock(run.rank, float("nan"), float("nan"), float("nan"), 0, 0)
    apart = np.array([mine[key].end_ns - reference[key].end_ns for key in shared], np.int64)
    offset = float(np.median(apart))
    distance = np.abs(apart - offset)
    residual = float(np.median(distance))
    one_host = run.trace.host == of.trace.host != "" and run.trace.has_epoch and of.trace.has_epoch
    moves, mispaired = abs(offset) > residual, False
    if one_host:
        moves = moves and _contradicted([(mine[key], reference[key]) for key in shared])
        numbered = run.phases.numbered and of.phases.numbered
        length_ns = step_ns(of) * len(of.phases.iterations)
        mispaired = moves and not numbered and step_ns(of) / 2 < abs(offset) < length_ns
    ends_ns = np.array([reference[key].end_ns for key in shared], np.int64)
    return Clock(
        run.rank,
        offset,
        residual,
        float(distance.max()),
        len(shared),
        round(offset) if moves and not mispaired else 0,
        one_host,
        mispaired,
        math.nan if one_host and not moves else _drift_ppm(ends_ns, apart),
    )


def _contradicted(pairs: list[tuple[Collective, Collective]]) -> bool:
    """Whether most ended on one rank before the other came to them, by the clocks as they are."""
    together = [pair for pair in pairs if pair[0].operation in _TOGETHER]
    before = sum(
        one.end_ns < other.launch_ns or other.end_ns < one.launch_ns for one, other in together
    )
    return 2 * before > len(together)


def _drift_ppm(at_ns: np.ndarray, apart_ns: np.ndarray) -> float:
    """Of a line through the offsets, if they are on one: by medians of thirds, so that single
    late ends don't tilt it."""
    third = len(at_ns) // 3
    if third < 3:
        return math.nan
    order = np.argsort(at_ns)
    at, apart = (at_ns[order] - at_ns.min()).astype(float), apart_ns[order].astype(float)
    (x0, y0), (x1, y1) = (
        (np.median(at[part]), np.median(apart[part]))
        for part in (slice(third), slice(-third, None))
    )
    if x1 <= x0:
        return math.nan
    slope = (y1 - y0) / (x1 - x0)
    level = apart - slope * at
    left = np.median(np.abs(level - np.median(level)))
    residual = np.median(np.abs(apart - np.median(apart)))
    found = 2 * left < residual and abs(slope) < _MOST_DRIFT
    return float(1e6 * slope) if found else math.nan


def step_ns(run: Run) -> float:
    """From one forward to the next, the median; 0 where there are no two."""
    begins = [it.forward.begin_ns for it in run.phases.iterations]
    return float(np.median(np.diff(begins))) if len(begins) > 1 else 0.0


def _ends(run: Run) -> dict[tuple[str, str, int, int], Collective]:
    """Of what completes on all ranks together; of all collectives where there is none such."""
    numbered = list(zip(run.collectives, run.numbers(), strict=True))
    ended = [(one.collective, key) for one, key in numbered if one.collective.end_ns]
    together = [item for item in ended if item[0].operation in _TOGETHER]
    return {
        (one.operation, group, step, number): one
        for one, (group, step, number) in (together or ended)
    }
