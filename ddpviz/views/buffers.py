"""The sync of buffers over the last steps: its time, its conditions; what it moved, and why not."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import pandas as pd

from ddpviz.analysis.buffer_dtypes import buffer_dtype_rows
from ddpviz.analysis.buffers import buffer_rows, decided_rows
from ddpviz.analysis.calls import calls
from ddpviz.views import lane_canvas, live_canvas
from ddpviz.views.buffer_facts import buffer_facts
from ddpviz.views.buffer_lanes import add_lanes
from ddpviz.views.columns import Row, as_rows
from ddpviz.views.lane_canvas import QUIET, Stack
from ddpviz.views.live import HISTORY_STEPS, LiveFigure, LiveView, Moment, Picture
from ddpviz.views.live_canvas import Kind
from ddpviz.views.live_steps import (
    CHANGES,
    Bins,
    bins_of,
    change_marks,
    last_of,
    step_axis,
    step_bounds,
    steps_label,
    top_of,
)
from ddpviz.views.text import count, duration, sent_size, size

_KINDS = {
    "buffers": Kind("sync of buffers", "#CC79A7", rare=True),
    "hooked": Kind("buffer hook in its place", "#E8BDD5", rare=True),
    "enqueued": Kind("sync, its time is not known", "#CC79A7", hatched=True, rare=True),
    "drift": Kind("drifted apart before the sync", "#CC79A7", hatched=True, rare=True),
    "holds": Kind("condition holds", QUIET),
    "some": Kind("in some forwards of the step", QUIET, hatched=True, rare=True),
    "fails": Kind("does not hold", "#000000", rare=True),
}
_NOT_KNOWN = "its time is not known"
#: Where the bars of times begin and end, in px from the top, and the pitch of the lanes below.
_TOP_PX, _FLOOR_PX, _PITCH_PX = 10.0, 110.0, 20.0


def draw() -> LiveFigure:
    """The figure without steps."""
    drawn = lane_canvas.lane_figure(_KINDS, x_label="step", ink=("fails",), marks=CHANGES)
    drawn.canvas.sources["bars"].data = live_canvas.bars([])
    step_axis(drawn.canvas.plot)
    return drawn.live()


def picture(moment: Moment) -> Picture:
    """On top a bar per step that synchronized buffers, below the conditions; facts of the step."""
    history = moment.history
    steps = np.unique(history.steps["step"].to_numpy(np.int64))
    if moment.step is None or not len(steps):
        hint = moment.hint if moment.step is None else "no step was completed yet"
        return lane_canvas.empty(hint, moment.step, _sources([], []))
    bins = bins_of(steps)
    sent = _by_label(history.sent, bins)
    rows = [
        row
        for place, *means in _per_bar(_means(history.buffers, steps), bins)
        for row in _bar(
            int(bins.first[place]),
            int(bins.last[place]),
            bins.named(place),
            *means,
            sent.get(place, ()),
        )
    ]
    top, cut = top_of(np.array([row["top"] for row in rows]))
    floor = _FLOOR_PX if rows else 0.0  # without bars there are lanes alone
    scale = (_FLOOR_PX - _TOP_PX) / top
    times = _times(top, scale) if rows else []
    rows = [{**row, "top": max(floor - scale * row["top"], 0.0), "bottom": floor} for row in rows]
    stack = Stack(_PITCH_PX, floor + 12)
    rows += add_lanes(stack, history.buffers, moment.source, steps, bins)
    height = stack.height_px - floor
    bounds = step_bounds(steps)
    marks = [
        {**mark, "top": 0.0, "bottom": height}
        for mark in change_marks(history.changes, bounds, height)
    ]
    title, facts = _told(moment)
    if cut:
        facts = (*facts, f"{count(cut, 'bar')} cut at the top of the figure")
    return Picture(
        step=moment.step,
        title=title,
        sources=_sources(rows, marks),
        x=bounds,
        x_until=last_of(steps),
        x_label=steps_label(bins),
        y=(height, 0.0),
        height_px=round(height),
        y_labels=[*times, *stack.labels],
        facts=facts,
    )


def _times(top: float, scale: float) -> list[tuple[float, str]]:
    """Labels of the bars' heights."""
    whole = top / 1.02 if top > 0 else 0.0
    return [
        (_FLOOR_PX - scale * ms, duration(ms) if ms else "0 ms") for ms in (0.0, whole / 2, whole)
    ]


def _told(moment: Moment) -> tuple[str, tuple[str, ...]]:
    """The finding and the facts of the moment's step."""
    step = moment.step
    assert step is not None
    source = moment.source
    if step < 0:
        return "a construction has no forward: run a step", ()
    called = calls(source, step)
    forwards = decided_rows(source, step, buffer_rows(source, step, called))
    if not len(forwards):
        return "no forward of a DDP module was completed yet", ()
    of_forwards = as_rows(forwards)
    of_dtypes = as_rows(buffer_dtype_rows(source, step, called))
    title = _title(step, _means(forwards, np.array([step])), of_dtypes, of_forwards)
    return title, buffer_facts(source, step, of_forwards, of_dtypes)


def _sources(bars: list[Row], marks: list[Row]) -> dict[str, dict[str, object]]:
    return {
        "bars": live_canvas.bars(bars),
        "marks": live_canvas.marks(marks),
        "labels": lane_canvas.labels([]),
    }


def _means(table: pd.DataFrame | np.ndarray, steps: np.ndarray) -> tuple[np.ndarray, ...]:
    """Of those steps that have forwards: step, syncs, their broadcasts, bytes, ms, all of a rank's
    forwards together and of these the mean of ranks. A time that is not known is left out of a
    rank's sum, one without any out of the mean."""
    table = table[np.isin(np.asarray(table["step"]), steps)]
    keys = (np.asarray(table["step"], np.int64) << 16) | np.asarray(table["rank"], np.int64)
    of_rank, rank = np.unique(keys, return_inverse=True)
    found, step = np.unique(of_rank >> 16, return_inverse=True)
    means = []
    for name in ("fired", "broadcasts", "bytes", "sync_ms"):
        values = np.asarray(table[name], np.float64)
        known = ~np.isnan(values)
        sums = np.bincount(rank[known], values[known], len(of_rank))
        has = np.bincount(rank[known], minlength=len(of_rank)) > 0
        total = np.bincount(step[has], sums[has], len(found))
        with np.errstate(invalid="ignore"):
            means.append(total / np.bincount(step[has], minlength=len(found)))
    return (found, *means)


#: What was sent of one dtype by one op: both names, collectives, bytes.
_Sent = tuple[str, str, int, int]


def _by_label(sent: pd.DataFrame, bins: Bins) -> dict[int, tuple[_Sent, ...]]:
    """By the place of a bar what the first rank sent in its steps, by op and dtype."""
    sent = sent[sent["rank"] == sent["rank"].min()]
    sent = sent[sent["step"] >= (bins.first[0] if len(bins.first) else 0)]
    sent = sent.assign(place=bins.of(sent["step"].to_numpy(np.int64)))
    keys = ["place", "op", "dtype"]
    sums = sent.groupby(keys, as_index=False, sort=False)[["collectives", "bytes"]].sum()
    found: dict[int, tuple[_Sent, ...]] = {}
    names = (*keys, "collectives", "bytes")
    for place, *of in zip(*(sums[name].tolist() for name in names), strict=True):
        found[place] = (*found.get(place, ()), (of[0], of[1], of[2], of[3]))
    return found


def _per_bar(
    means: tuple[np.ndarray, ...], bins: Bins
) -> list[tuple[int, float, float, float, float]]:
    """Place; syncs, broadcasts, bytes of all its steps; ms of a step that has any: of each bar."""
    steps, syncs, number, size_bytes, took_ms = means
    place = bins.of(steps)
    room = len(bins.first)
    fired = (syncs > 0) & ~np.isnan(took_ms)
    with np.errstate(invalid="ignore"):
        ms = np.bincount(place[fired], took_ms[fired], room) / np.bincount(
            place[fired], minlength=room
        )
    sums = (np.bincount(place, values, room).tolist() for values in (syncs, number, size_bytes))
    return list(zip(range(room), *sums, ms.tolist(), strict=True))


@functools.lru_cache(maxsize=HISTORY_STEPS * 4)
def _bar(
    step: int,
    last: int,
    named: str,
    syncs: float,
    number: float,
    size_bytes: float,
    sync_ms: float,
    of: tuple[_Sent, ...],
) -> tuple[Row, ...]:
    if not syncs:
        return ()
    known, each = not np.isnan(sync_ms), " a step" if last > step else ""
    kind = ("buffers" if number else "hooked") if known else "enqueued"
    what = f"{count(round(number), 'broadcast')}, {sent_size(size_bytes)}"
    return (
        {
            "kind": kind,
            "step": step,
            "left": step - 0.45,
            "right": last + 0.45,
            "bottom": 0.0,
            "top": sync_ms if known else 0.05,
            "head": f"{named}: {what if number else 'a buffer hook in place of the broadcast'}",
            "time": f"{duration(sync_ms)}{each} (mean of ranks)" if known else _NOT_KNOWN,
            "detail": "\n".join(
                f"{dtype or 'unknown dtype'}: {count(sent, op or 'collective')}, "
                f"{sent_size(sent_bytes)}"
                for op, dtype, sent, sent_bytes in of
            ),
        },
    )


def _title(
    step: int, means: tuple[np.ndarray, ...], sent: Sequence[Row], forwards: Sequence[Row]
) -> str:
    _, _, number, size_bytes, took = (values[-1].item() for values in means)
    if not number:
        why = dict.fromkeys(row["why"] for row in forwards)
        told = next(iter(why))
        if "buffer hook" in told:
            return f"step {step}: {told.removeprefix('it fired, and ')}"
        return f"no buffer was broadcast in step {step}: {told}"
    dtypes = ", ".join(dict.fromkeys(row["dtype"] for row in sent if row["dtype"]))
    ranks = len({row["rank"] for row in sent})
    what = f"{size(size_bytes)} of buffers" if size_bytes else "buffers of unknown size"
    told = (
        f"step {step} sent {what} in "
        f"{count(round(number), 'broadcast')} of {dtypes or 'unknown dtype'}"
    )
    mean = " in the mean of ranks" if ranks > 1 else ""
    return f"{told}: its time is not known" if np.isnan(took) else f"{told}, {duration(took)}{mean}"


VIEW = LiveView("buffers", draw, picture, of_step=True, over_steps=True)
