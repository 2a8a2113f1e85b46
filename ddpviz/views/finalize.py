"""The end of a step's backward: what finalize waits for, what is left, and who divides."""

from __future__ import annotations

import dataclasses
import itertools
import math

from ddpviz.analysis import finalize
from ddpviz.analysis.calls import calls
from ddpviz.analysis.configurations import configured
from ddpviz.analysis.finalizes import division
from ddpviz.events import Cause
from ddpviz.views import lane_canvas, live_canvas
from ddpviz.views.columns import Row, as_rows
from ddpviz.views.lane_canvas import Stack
from ddpviz.views.live import LiveFigure, LiveView, Moment, Picture
from ddpviz.views.live_canvas import Kind
from ddpviz.views.palette import SPANS
from ddpviz.views.text import count, duration, sent_size

_KINDS = {
    "wait": Kind("waits for the bucket, derived", SPANS["in_flight"][0], hatched=True, rare=True),
    "rest": Kind(
        "every bucket complete: copies back, derived", SPANS["backward"][0], hatched=True, rare=True
    ),
    "whole": Kind("not split", SPANS["backward"][0], rare=True),
}
_PITCH_PX = (26.0, 14.0)
_WANTED_HEIGHT_PX = 360.0
#: Lanes of buckets of all ranks together; of more, those that were waited for longest.
_MOST_LANES = 40


def draw() -> LiveFigure:
    """The figure without a step."""
    return lane_canvas.lane_figure(_KINDS, x_label="ms since finalize began on each rank").live()


def picture(moment: Moment) -> Picture:
    """The moment's step: per rank a lane for each bucket, and one for what is left."""
    if moment.step is None:
        return _nothing(moment, moment.hint)
    if moment.step < 0:
        return _nothing(moment, "a construction has no backward: run a step")
    table = finalize(moment.source, moment.step)
    if table.empty:
        return _without(moment)
    by_rank = _one_run(as_rows(table))
    others = len(table[["module", "iteration"]].drop_duplicates()) - 1
    ranks = lane_canvas.chosen_ranks({r: rows[0]["finalize_ms"] for r, rows in by_rank.items()})
    most = max(1, _MOST_LANES // len(ranks))
    lanes = sum(min(len(by_rank[rank]), most) + 1 for rank in ranks)
    largest, smallest = _PITCH_PX
    stack = Stack(min(largest, max(smallest, _WANTED_HEIGHT_PX / lanes)))
    bars: list[Row] = []
    labels: list[Row] = []
    for rank in ranks:
        _add_rank(rank, by_rank[rank], most, stack, bars, labels)
        stack.gap()
    end = max(by_rank[rank][0]["finalize_ms"] for rank in ranks)
    return Picture(
        step=moment.step,
        title=_title(by_rank, moment.step),
        sources={
            "bars": lane_canvas.bars(bars),
            "marks": live_canvas.marks([]),
            "labels": lane_canvas.labels(labels),
        },
        x=(0.0, lane_canvas.with_room(end, [row["text"] for row in labels], moment.width_px)),
        x_until=end,
        y=(stack.height_px, 0.0),
        height_px=round(stack.height_px),
        y_labels=stack.labels,
        facts=_facts(by_rank, len(ranks), others),
    )


def _without(moment: Moment) -> Picture:
    """Of a step without finalize: why, and who divides instead."""
    assert moment.step is not None
    called = calls(moment.source, moment.step)
    reduced = called[called["cause"] == Cause.PYTHON_REDUCER]
    if not len(reduced):
        return _nothing(moment, f"step {moment.step} has no backward that reduced gradients")
    picture = _nothing(moment, f"step {moment.step}: python_reducer reduced, no finalize ran")
    first = reduced[0]
    values = configured(moment.source, int(first["rank"])).at(
        int(first["module"]), int(first["begin_ns"])
    )
    return dataclasses.replace(picture, facts=(f"{_DIVISION}: {division(values)}",))


def _one_run(table: list[Row]) -> dict[int, list[Row]]:
    """By rank the buckets, in order; of several backwards in a step of the longest."""
    longest = max(table, key=lambda row: row["finalize_ms"])
    found: dict[int, list[Row]] = {}
    for row in sorted(table, key=lambda row: (row["rank"], row["bucket"])):
        if all(row[name] == longest[name] for name in ("module", "iteration")):
            found.setdefault(row["rank"], []).append(row)
    return found


def _add_rank(
    rank: int, rows: list[Row], most: int, stack: Stack, bars: list[Row], labels: list[Row]
) -> None:
    waits = [0.0 if math.isnan(row["wait_ms"]) else row["wait_ms"] for row in rows]
    begins = [0.0, *itertools.accumulate(waits)]
    kept = sorted(sorted(range(len(rows)), key=lambda at: -waits[at])[:most])
    for at in kept:
        row, wait_ms, begin = rows[at], waits[at], begins[at]
        lane = stack.add(f"rank {rank}  bucket {row['bucket']}")
        text = f"waits {duration(wait_ms)}" if wait_ms else "no wait"
        text = "not known" if math.isnan(row["wait_ms"]) else text
        labels.append(lane_canvas.label(begin + wait_ms, lane, text))
        if wait_ms > 0:
            told = {
                "head": f"rank {rank} waits for bucket {row['bucket']}: {duration(wait_ms)}",
                "time": f"{sent_size(row['bytes'])}; at most so long, as buckets before it may be "
                "copied back meanwhile",
            }
            end = begin + wait_ms
            bars.append(
                lane_canvas.bar(lane, "wait", begin, end, rank=rank, bucket=row["bucket"], **told)
            )
    _add_rest(rank, rows[0]["finalize_ms"], rows[0]["rest_ms"], stack, bars, labels)


def _add_rest(
    rank: int,
    whole_ms: float,
    rest_ms: float,
    stack: Stack,
    bars: list[Row],
    labels: list[Row],
) -> None:
    known = not math.isnan(rest_ms)
    lane = stack.add(f"rank {rank}  the rest" if known else f"rank {rank}  finalize")
    what = "every bucket is complete" if known else "finalize"
    told_ms = rest_ms if known else whole_ms
    bars.append(
        lane_canvas.bar(
            lane,
            "rest" if known else "whole",
            whole_ms - told_ms,
            whole_ms,
            rank=rank,
            head=f"rank {rank}: {what}, {duration(told_ms)}",
            time=f"of {duration(whole_ms)} in finalize",
        )
    )
    labels.append(lane_canvas.label(whole_ms, lane, duration(told_ms)))


def _title(by_rank: dict[int, list[Row]], step: int) -> str:
    rank = max(by_rank, key=lambda rank: by_rank[rank][0]["finalize_ms"])
    mine = by_rank[rank]
    took = f"step {step}: finalize took {duration(mine[0]['finalize_ms'])} on rank {rank}"
    known = [row for row in mine if not math.isnan(row["wait_ms"])]
    if not known:
        return f"{took}; what it waited for is not known"
    rest_ms, whole_ms = mine[0]["rest_ms"], sum(row["wait_ms"] for row in known)
    if whole_ms > 0:
        longest = max(known, key=lambda row: row["wait_ms"])
        whom = f" for bucket {longest['bucket']}"
        if longest["wait_ms"] < 0.95 * whole_ms:
            whom = f", longest for bucket {longest['bucket']} ({duration(longest['wait_ms'])})"
        took += f": {duration(whole_ms)} of it waiting{whom}"
    else:
        took += " and waited for nothing"
    if not math.isnan(rest_ms):
        took += f"; the last {duration(rest_ms)} after all were complete"
    return took


def _facts(by_rank: dict[int, list[Row]], ranks: int, others: int) -> tuple[str, ...]:
    first = next(iter(by_rank.values()))[0]
    told = [f"{name}: {first[column]}" for name, column in _TOLD.items()]
    if first["proxy"]:
        told.append(first["proxy"].replace("rest_ms", "“the rest”"))
    if others:
        told.append(
            f"the step has {count(others, 'more backward')} with buckets: this is the longest"
        )
    if len(by_rank) > ranks:
        told.append(f"shown are {count(ranks, 'rank')} of {len(by_rank)}: slowest, fastest, median")
    return tuple(told)


_DIVISION = "division by the number of ranks"
_TOLD = {_DIVISION: "division", "copying back": "copy"}


def _nothing(moment: Moment, title: str) -> Picture:
    return lane_canvas.empty(
        title,
        moment.step,
        {
            "bars": lane_canvas.bars([]),
            "marks": live_canvas.marks([]),
            "labels": lane_canvas.labels([]),
        },
    )


VIEW = LiveView("finalize", draw, picture, of_step=True)
