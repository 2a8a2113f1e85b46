"""All ranks on one clock: what the ends of the collectives they share say of their clocks."""

from __future__ import annotations

import dataclasses

import numpy as np

from ddpviz.traces.runs import Run

#: No rank has the result of these before every rank has given its part.
_TOGETHER = ("allreduce", "allgather", "alltoall", "barrier")


@dataclasses.dataclass(frozen=True)
class Clock:
    """How a rank's clock stands to that of the lowest rank.

    ``offset_ns``: how far it is ahead, by the median of ``matched`` collectives' ends;
    ``residual_ns``: the median distance from that median, so how well it is known; ``worst_ns``:
    the largest. ``moved_ns``: what was subtracted from its times: the offset, or 0 where nothing
    matched or the offset is within what is not known of it, its residual. Ranks of one host have
    one clock already (``one_host``), so there it is moved only where every collective says so.
    """

    rank: int
    offset_ns: float
    residual_ns: float
    worst_ns: float
    matched: int
    moved_ns: int
    one_host: bool = False


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


def _clock(run: Run, reference: dict[tuple[str, str, int, int], int], of: Run) -> Clock:
    mine = _ends(run)
    shared = sorted(mine.keys() & reference.keys())
    if not shared:
        return Clock(run.rank, float("nan"), float("nan"), float("nan"), 0, 0)
    apart = np.array([mine[key] - reference[key] for key in shared], np.int64)
    offset = float(np.median(apart))
    distance = np.abs(apart - offset)
    residual = float(np.median(distance))
    worst = float(distance.max())
    one_host = run.trace.host == of.trace.host != "" and run.trace.has_epoch and of.trace.has_epoch
    moved = round(offset) if abs(offset) > (2 * worst if one_host else residual) else 0
    return Clock(run.rank, offset, residual, worst, len(shared), moved, one_host)


def _ends(run: Run) -> dict[tuple[str, str, int, int], int]:
    """Ends of what completes on all ranks together; of all collectives where there is none such."""
    numbered = list(zip(run.collectives, run.numbers(), strict=True))
    ended = [(one.collective, key) for one, key in numbered if one.collective.end_ns]
    together = [item for item in ended if item[0].operation in _TOGETHER]
    return {
        (one.operation, group, step, number): one.end_ns
        for one, (group, step, number) in (together or ended)
    }
