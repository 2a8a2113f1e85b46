"""Hidden and exposed communication of the last steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ddpviz.views import live_canvas
from ddpviz.views.live import LiveFigure, LiveView, Moment, Picture
from ddpviz.views.live_canvas import Kind
from ddpviz.views.live_steps import (
    by_step,
    change_marks,
    cut_label,
    mean_of_ranks,
    step_axis,
    step_bounds,
    top_of,
)
from ddpviz.views.text import EXPOSED, HIDDEN, duration

_HEIGHT_PX = 240
_KINDS = {
    "hidden": Kind("hidden behind backward", "#0072B2"),
    "exposed": Kind("exposed", None),
}
_Y_LABEL = "ms of communication, mean of ranks"


def draw() -> LiveFigure:
    """The figure without steps."""
    drawn = live_canvas.canvas(_KINDS, x_label="step", y_label=_Y_LABEL, height_px=_HEIGHT_PX)
    step_axis(drawn.plot)
    return LiveFigure(drawn.plot, drawn.sources, drawn.themed)


def picture(moment: Moment) -> Picture:
    """A bar per step: hidden below, exposed on it."""
    table = moment.history.steps
    names = ["hidden_communication_ms", "exposed_communication_ms"]
    mean = mean_of_ranks(table, names).dropna() if len(table) else pd.DataFrame(columns=names)
    told = by_step(table, _line, names)
    rows: list[dict[str, Any]] = []
    for step, hidden_ms, exposed_ms in mean.itertuples():
        rows += _bars(int(step), hidden_ms, exposed_ms, told[int(step)])
    top, cut = top_of(mean.sum(axis="columns").to_numpy(np.float64))
    bounds = step_bounds(mean.index)
    return Picture(
        step=int(mean.index[-1]) if len(mean) else -1 if moment.step is None else moment.step,
        title=_title(moment, mean),
        sources={
            "bars": live_canvas.bars(rows),
            "marks": live_canvas.marks(change_marks(moment.history.changes, bounds, top)),
        },
        x=bounds,
        y=(0.0, top),
        height_px=_HEIGHT_PX,
        y_label=cut_label(_Y_LABEL, cut),
        empty=not len(mean),
    )


def _bars(step: int, hidden_ms: float, exposed_ms: float, ranks: str) -> list[dict[str, Any]]:
    common = {
        "step": step,
        "left": step - 0.45,
        "right": step + 0.45,
        "detail": ranks,
    }
    hidden = f"step {step}: {duration(hidden_ms)} hidden"
    exposed = f"step {step}: {duration(exposed_ms)} exposed"
    whole_ms = hidden_ms + exposed_ms
    return [
        {**common, "kind": "hidden", "bottom": 0, "top": hidden_ms, "head": hidden, "time": HIDDEN},
        {
            **common,
            "kind": "exposed",
            "bottom": hidden_ms,
            "top": whole_ms,
            "head": exposed,
            "time": EXPOSED,
        },
    ]


def _line(hidden_ms: float, exposed_ms: float) -> str:
    return f"hidden {duration(hidden_ms)}, exposed {duration(exposed_ms)}"


def _title(moment: Moment, mean: pd.DataFrame) -> str:
    if moment.step is None:
        return moment.hint
    if moment.history.steps.empty:
        return "no step was completed yet"
    if mean.empty:
        return "how much communication is hidden is not known: its completions were not seen"
    hidden_ms, exposed_ms = mean.sum()
    whole_ms = hidden_ms + exposed_ms
    steps = "step" if len(mean) == 1 else f"{len(mean)} steps"
    if whole_ms <= 0:
        return f"no communication in the last {steps}"
    return f"{hidden_ms / whole_ms:.0%} of communication hidden behind backward in the last {steps}"


VIEW = LiveView("overlap", draw, picture)
