"""Buffer broadcasts of the last steps: how many, of what, how long, and why or why not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ddpviz.events import Configuration, Module
from ddpviz.views import live_canvas
from ddpviz.views.live import LiveFigure, LiveView, Moment, Picture
from ddpviz.views.live_canvas import Kind
from ddpviz.views.live_steps import change_marks, cut_label, step_axis, step_bounds, top_of
from ddpviz.views.text import count, duration, size

_HEIGHT_PX = 240
_KINDS = {
    "buffers": Kind("buffer broadcast", "#CC79A7"),
    "enqueued": Kind("enqueued only, its time is not known", "#CC79A7", hatched=True),
}
_Y_LABEL = "ms in buffer broadcasts, mean of ranks"
#: DDP's two names of one flag (torch >= 2.13 has the first).
_FLAGS = ("forward_sync_buffers", "broadcast_buffers")


def draw() -> LiveFigure:
    """The figure without steps."""
    drawn = live_canvas.canvas(_KINDS, x_label="step", y_label=_Y_LABEL, height_px=_HEIGHT_PX)
    step_axis(drawn.plot)
    return LiveFigure(drawn.plot, drawn.sources, drawn.themed)


def picture(moment: Moment) -> Picture:
    """A bar per step that broadcast buffers."""
    steps = np.unique(moment.history.steps["step"]) if len(moment.history.steps) else np.array([])
    table = moment.history.buffers
    table = table[table["step"].isin(steps)]
    per_rank = table.groupby(["step", "rank"])[["broadcasts", "bytes", "sync_ms"]].sum(min_count=1)
    mean = per_rank.groupby("step").mean()
    broadcasts = moment.history.broadcasts
    first = broadcasts[broadcasts["rank"] == broadcasts["rank"].min()]
    by_dtype: dict[int, list[dict[str, Any]]] = {}
    for row in first.to_dict("records"):
        by_dtype.setdefault(int(row["step"]), []).append({str(k): v for k, v in row.items()})
    rows = [
        row
        for step, number, size_bytes, sync_ms in mean.itertuples()
        for row in _bar(int(step), number, size_bytes, sync_ms, by_dtype.get(int(step), []))
    ]
    top, cut = top_of(np.array([row["top"] for row in rows]))
    bounds = step_bounds(steps)
    return Picture(
        step=int(steps[-1]) if len(steps) else -1 if moment.step is None else moment.step,
        title=_title(moment, mean, by_dtype),
        sources={
            "bars": live_canvas.bars(rows),
            "marks": live_canvas.marks(change_marks(moment.history.changes, bounds, top)),
        },
        x=bounds,
        y=(0.0, top),
        height_px=_HEIGHT_PX,
        y_label=cut_label(_Y_LABEL, cut),
        empty=not len(steps),
    )


def _bar(
    step: int, number: float, size_bytes: float, sync_ms: float, of: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    if not number:
        return []
    known = not np.isnan(sync_ms)
    return [
        {
            "kind": "buffers" if known else "enqueued",
            "step": step,
            "left": step - 0.45,
            "right": step + 0.45,
            "bottom": 0.0,
            "top": sync_ms if known else 0.05,
            "head": f"step {step}: {count(round(number), 'broadcast')}, {size(size_bytes)}",
            "time": f"{duration(sync_ms)} (mean of ranks)" if known else "its time is not known",
            "detail": _dtypes(of),
        }
    ]


def _dtypes(of: list[dict[str, Any]]) -> str:
    return "\n".join(
        f"{row['dtype'] or 'unknown dtype'}: {count(int(row['broadcasts']), 'broadcast')}, "
        f"{size(row['bytes'])}"
        for row in of
    )


def _title(moment: Moment, mean: pd.DataFrame, by_dtype: dict[int, list[dict[str, Any]]]) -> str:
    if moment.step is None:
        return moment.hint
    if mean.empty:
        return "no forward of a DDP module was completed yet"
    step, last = mean.index[-1], mean.iloc[-1]
    if not last["broadcasts"]:
        return f"no buffer was broadcast in step {step}: {_why_not(moment, int(step))}"
    dtypes = ", ".join(str(row["dtype"]) for row in by_dtype.get(int(step), []))
    told = (
        f"step {step} sent {size(last['bytes'])} of buffers in "
        f"{count(round(last['broadcasts']), 'broadcast')} of {dtypes or 'unknown dtype'}"
    )
    took = last["sync_ms"]
    return f"{told}: its time is not known" if np.isnan(took) else f"{told}, {duration(took)}"


def _why_not(moment: Moment, step: int) -> str:
    """The reason as far as the record tells it."""
    forwards = moment.history.buffers[moment.history.buffers["step"] == step]
    module = int(forwards["module"].max())
    notes = [note for note in moment.source.notes(Module) if note.id == module]
    if notes and not notes[-1].buffers:
        return f"{notes[-1].name} has none"
    values = [n.values for n in moment.source.notes(Configuration) if n.module == module]
    off = [name for name in _FLAGS if values and values[-1].get(name) is False]
    if off:
        return f"{off[0]} is off"
    if forwards["no_grad"].all():
        return "its forwards are without gradients"
    if forwards["no_sync"].any():
        return "after a forward under no_sync none is due"
    if forwards["fired"].any():
        return "a buffer hook took care of them"
    return "none was due"


VIEW = LiveView("buffers", draw, picture)
