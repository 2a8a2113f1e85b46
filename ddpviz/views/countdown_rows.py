"""The rows of the countdown: which run and ranks it shows, each bucket's way to zero. No Bokeh."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ddpviz.analysis.buckets import reduced_rows
from ddpviz.analysis.countdown import event_rows
from ddpviz.analysis.plans import plan_index
from ddpviz.analysis.source import Source
from ddpviz.events import Process
from ddpviz.views import lane_canvas
from ddpviz.views.columns import Row
from ddpviz.views.lane_canvas import Lane, Stack
from ddpviz.views.text import count, duration

#: Lanes of all ranks together.
_MOST_LANES = 48
#: Steps of all staircases together; of a bucket's gradients, neighbours are merged beyond it.
_MOST_STEPS = 1_500
_PITCH_PX = (30.0, 15.0)
_WANTED_HEIGHT_PX = 420.0


class Event(NamedTuple):
    """A row of :func:`ddpviz.analysis.countdown`, placed on the figure's axis at ``at_ms``."""

    what: str
    rank: int
    bucket: int
    name: str
    at_ms: float
    waited_ms: float
    unused: bool


@dataclasses.dataclass(frozen=True)
class CountdownRows:
    """What the figure shows. ``states``: from ``t`` on, lane ``lane`` (from 0) says ``text``.

    ``order``: points of the line from launch to launch, NaN between two ranks. ``waits``: launches
    that had to wait for an earlier bucket, longest first; ``events``: all of one backward.
    ``one_clock``: all ranks share one zero; else each has its own. ``other_runs``: backwards of the
    step, of this module or another, that are not shown.
    """

    bars: list[Row]
    states: list[Row]
    order: list[tuple[float, float]]
    lanes: list[Lane]
    height_px: float
    end_ms: float
    waits: list[Event]
    events: list[Event]
    ranks: list[int]
    of_ranks: int
    left_out: int
    one_clock: bool
    other_runs: int


def countdown_rows(source: Source, step: int) -> CountdownRows | None:
    """Rows of the backward with most buckets; None without one."""
    index = plan_index(source)
    reduced = reduced_rows(source, step, index)
    found = {rank: event_rows(source, step, rank, index, reduced) for rank in source.ranks}
    one_clock = len({note.hostname for note in source.notes(Process)}) <= 1
    run, other_runs = _one_run(found)
    events, begins = _placed(run, one_clock)
    if not events:
        return None
    ends = {rank: max(e.at_ms for e in events if e.rank == rank) for rank in begins}
    chosen = lane_canvas.chosen_ranks(ends)
    buckets = max(event.bucket for event in events) + 1
    if len(chosen) * buckets > _MOST_LANES and len(chosen) > 2:
        chosen = sorted({min(ends, key=lambda r: ends[r]), max(ends, key=lambda r: ends[r])})
    shown = max(1, min(buckets, _MOST_LANES // len(chosen)))
    return _rows(events, begins, chosen, shown, one_clock, other_runs)


def _one_run(found: dict[int, np.ndarray]) -> tuple[dict[int, np.ndarray], int]:
    """The run (module, iteration) with most launches, of several the last, by ranks that have it;
    and how many other runs launched anything."""
    runs: dict[tuple[int, int], tuple[int, int]] = {}
    for rows in found.values():
        for what, module, iteration in zip(
            rows["event"].tolist(), rows["module"].tolist(), rows["iteration"].tolist(), strict=True
        ):
            launches, others = runs.get((module, iteration), (0, 0))
            is_launch = what == "launched"
            runs[module, iteration] = launches + is_launch, others + (not is_launch)
    if not runs:
        return {}, 0
    module, iteration = max(runs, key=lambda run: (runs[run], run))
    of_run = {
        rank: rows[(rows["module"] == module) & (rows["iteration"] == iteration)]
        for rank, rows in found.items()
    }
    launched = sum(launches > 0 for launches, _ in runs.values())
    others = launched - (runs[module, iteration][0] > 0)
    return {rank: rows for rank, rows in of_run.items() if len(rows)}, others


def _placed(found: dict[int, np.ndarray], one_clock: bool) -> tuple[list[Event], dict[int, float]]:
    """Events on one axis, and where each rank's zero is on it; without one, its first event."""
    zeros_ns = {}
    for rank, rows in found.items():
        since_ns = np.nan_to_num(rows["since_ms"] * 1e6)
        zeros_ns[rank] = int((rows["time_ns"] - since_ns.round().astype(np.int64)).min())
    first_ns = min(zeros_ns.values(), default=0)
    events = []
    for rank, rows in found.items():
        from_ns = first_ns if one_clock else zeros_ns[rank]
        columns = (
            rows[name].tolist() for name in ("event", "bucket", "name", "head_of_line_ms", "unused")
        )
        at_ms = ((rows["time_ns"] - from_ns) / 1e6).tolist()
        for what, bucket, name, waited_ms, unused, at in zip(*columns, at_ms, strict=True):
            waited = 0.0 if math.isnan(waited_ms) else waited_ms
            events.append(Event(what, rank, bucket, name, at, waited, unused))
    begins = {
        rank: (zero_ns - first_ns) / 1e6 if one_clock else 0.0 for rank, zero_ns in zeros_ns.items()
    }
    return events, begins


def _rows(
    events: list[Event],
    begins: dict[int, float],
    ranks: list[int],
    shown: int,
    one_clock: bool,
    other_runs: int,
) -> CountdownRows:
    groups: dict[tuple[int, int], list[Event]] = {}
    for event in events:
        if event.rank in ranks and 0 <= event.bucket < shown:
            groups.setdefault((event.rank, event.bucket), []).append(event)
    largest, smallest = _PITCH_PX
    stack = Stack(min(largest, max(smallest, _WANTED_HEIGHT_PX / max(len(groups), 1))))
    of_each = max(4, _MOST_STEPS // max(len(groups), 1))
    bars: list[Row] = []
    states: list[Row] = []
    order: list[tuple[float, float]] = []
    for rank in ranks:
        for key in sorted(key for key in groups if key[0] == rank):
            lane = stack.add(f"rank {rank}  bucket {key[1]}")
            way = _Way(groups[key], begins[rank], events, lane)
            bars += way.bars(of_each)
            states += [{"lane": len(stack.lanes) - 1, **state} for state in way.states(of_each)]
            if way.launched_ms is not None:
                order.append((way.launched_ms, lane.middle))
        order.append((math.nan, math.nan))
        stack.gap()
    waits = [event for event in events if event.what == "launched" and event.waited_ms > 0]
    return CountdownRows(
        bars=bars,
        states=states,
        order=order,
        lanes=stack.lanes,
        height_px=stack.height_px,
        end_ms=max(event.at_ms for of in groups.values() for event in of),
        waits=sorted(waits, key=lambda event: -event.waited_ms),
        events=events,
        ranks=ranks,
        of_ranks=len(begins),
        left_out=max(0, max(event.bucket for event in events) + 1 - shown),
        one_clock=one_clock,
        other_runs=other_runs,
    )


def holds_up(events: Iterable[Event], rank: int, bucket: int) -> Event | None:
    """When the last of the earlier buckets was full, and whose gradient did that."""
    full = [e for e in events if e.what == "full" and e.rank == rank and e.bucket < bucket]
    return max(full, key=lambda event: event.at_ms, default=None)


class _Way:
    """One bucket of a rank from its first gradient to its completion."""

    def __init__(self, mine: list[Event], begin_ms: float, events: list[Event], lane: Lane) -> None:
        ready = [event for event in mine if event.what == "ready"]
        self._ready_ms = [event.at_ms for event in ready]
        self._names = [f"{event.name} (unused)" if event.unused else event.name for event in ready]
        self._begin_ms, self._events, self._lane = begin_ms, events, lane
        self._rank, self._bucket = mine[0].rank, mine[0].bucket
        at = {event.what: event.at_ms for event in mine}
        self._full_ms, self.launched_ms, self._done_ms = (
            at.get("full"), at.get("launched"), at.get("done")
        )  # fmt: skip
        self._waited_ms = max(event.waited_ms for event in mine)

    def _steps(self, most: int) -> list[tuple[float, int, list[str]]]:
        """When pending fell to what, and whose gradients did that; at most so many."""
        total = len(self._names)
        ends = np.unique(np.linspace(0, total, min(total, most) + 1).round().astype(int))[1:]
        begins = [0, *ends.tolist()][:-1]
        return [
            (self._ready_ms[end - 1], total - int(end), self._names[begin:end])
            for begin, end in zip(begins, ends.tolist(), strict=True)
        ]

    def bars(self, most: int) -> list[Row]:
        """Its staircase down to zero, what it waits for, and the time in flight."""
        found, lane = [], self._lane
        total, before, pending = len(self._names), self._begin_ms, len(self._names)
        height, head = 2 * lane.half, f"rank {self._rank}, bucket {self._bucket}"
        for at_ms, left, names in self._steps(most):
            found.append(
                self._bar(
                    "pending",
                    before,
                    at_ms,
                    top=lane.bottom - height * pending / total,
                    head=f"{head}: {pending} of {total} pending",
                    detail=f"{_listed(names)} {'is' if len(names) == 1 else 'are'} ready at the "
                    f"end: {left} left",
                )
            )
            before, pending = at_ms, left
        if self._full_ms is None or self.launched_ms is None:
            return found + self._flight(head)
        turn_ms = min(self._full_ms + self._waited_ms, self.launched_ms)
        if self._waited_ms > 0:
            other = holds_up(self._events, self._rank, self._bucket)
            found.append(
                self._bar(
                    "head_of_line",
                    self._full_ms,
                    turn_ms,
                    head=f"{head} is full and waits its turn: {duration(self._waited_ms)}",
                    detail=f"for bucket {other.bucket}, whose last gradient is {other.name}"
                    if other
                    else "",
                )
            )
        if self.launched_ms > turn_ms:
            late = duration(self.launched_ms - turn_ms)
            found.append(
                self._bar(
                    "launch_delay",
                    turn_ms,
                    self.launched_ms,
                    head=f"{head} is full, not yet launched: {late}",
                    detail="",
                )
            )
        return found + self._flight(head)

    def _flight(self, head: str) -> list[Row]:
        if self.launched_ms is None or self._done_ms is None:
            return []
        took = duration(self._done_ms - self.launched_ms)
        return [
            self._bar(
                "in_flight",
                self.launched_ms,
                self._done_ms,
                top=self._lane.middle,
                head=f"{head} is in flight: {took}",
                detail="waits for ranks, and is transferred",
            )
        ]

    def _bar(self, kind: str, left: float, right: float, **told: Any) -> Row:
        row = lane_canvas.bar(
            self._lane, kind, left, right, bucket=self._bucket, rank=self._rank, **told
        )
        return {**row, "time": f"{duration(left)} to {duration(right)}"}

    def states(self, most: int) -> list[Row]:
        """What it says from when on."""
        total = len(self._names)
        found = [{"t": -1.0, "text": f"{total} pending" if total else ""}]
        found += [{"t": at, "text": f"{left} pending"} for at, left, _ in self._steps(most)]
        if self._full_ms is not None and self._waited_ms > 0:
            found.append({"t": self._full_ms, "text": "waits its turn"})
        for at_ms, text in ((self.launched_ms, "launched"), (self._done_ms, "done")):
            if at_ms is not None:
                found.append({"t": at_ms, "text": text})
        if self._waited_ms > 0 and found[-1]["text"] == "done":
            found[-1]["text"] = f"done, waited {duration(self._waited_ms)}"
        return sorted(found, key=lambda row: row["t"])


def _listed(names: list[str]) -> str:
    if len(names) == 1:
        return names[0]
    return f"{names[0]} to {names[-1]}, {count(len(names), 'gradient')}"
