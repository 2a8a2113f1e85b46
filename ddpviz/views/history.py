"""Step time over the last steps, split in what was computed and what was exposed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from bokeh.models import ColumnDataSource, Line, LinearAxis, Range1d

from ddpviz.views import live_canvas
from ddpviz.views.live import LiveFigure, LiveView, Moment, Pairs, Picture, numbers
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
from ddpviz.views.palette import Theme
from ddpviz.views.text import duration

_HEIGHT_PX = 150
_KINDS = {
    "compute": Kind("computes", "#009E73"),
    "exposed": Kind("exposed communication", None),
    "unsplit": Kind("step time, split not known", "#999999", hatched=True),
}
_Y_LABEL = "ms, mean of ranks"
#: Name of the second vertical range, of shares from 0 to 1.
_SHARES = "shares"
#: Columns of :func:`ddpviz.analysis.steps` that are drawn and told.
_TOLD = ["step_ms", "exposed_communication_ms", "hidden_communication_ms"]
_SHARE_LABEL = "communication hidden"


def draw() -> LiveFigure:
    """The figure without steps."""
    drawn = live_canvas.canvas(_KINDS, x_label="step", y_label=_Y_LABEL, height_px=_HEIGHT_PX)
    plot = drawn.plot
    step_axis(plot)
    share = ColumnDataSource({"x": numbers([]), "y": numbers([])})
    plot.extra_y_ranges = {_SHARES: Range1d(0, 1)}
    axis = LinearAxis(y_range_name=_SHARES, axis_label=_SHARE_LABEL)
    axis.ticker = [0, 0.5, 1]
    axis.major_label_overrides = {0: "0 %", 0.5: "50 %", 1: "100 %"}
    first = plot.yaxis[0]
    for name in ("axis_line_color", "major_tick_line_color", "minor_tick_line_color"):
        setattr(axis, name, None)
    for name in (
        "major_label_text_font_size",
        "major_label_text_font",
        "axis_label_text_font_size",
        "axis_label_text_font_style",
        "axis_label_text_font",
    ):
        setattr(axis, name, getattr(first, name))
    plot.add_layout(axis, "right")
    line = plot.add_glyph(share, Line(x="x", y="y", line_width=1.5), name="share")
    line.y_range_name = _SHARES

    def themed(theme: Theme) -> Pairs:
        return [*drawn.themed(theme), (line.glyph, {"line_color": theme.quiet_text})]

    return LiveFigure(plot, {**drawn.sources, "share": share}, themed)


def picture(moment: Moment) -> Picture:
    """Bars of the last steps; the step that is shown elsewhere names itself in the title."""
    table = moment.history.steps
    if table.empty:
        return _nothing(moment)
    mean = mean_of_ranks(table, _TOLD).dropna(subset="step_ms")
    if mean.empty:
        return _nothing(moment)
    told = by_step(table, _line, _TOLD)
    rows: list[dict[str, Any]] = []
    for step, step_ms, exposed_ms, _ in mean.itertuples():
        rows += _bars(int(step), step_ms, exposed_ms, told[int(step)])
    top, cut = top_of(mean["step_ms"].to_numpy())
    bounds = step_bounds(mean.index)
    hidden, exposed = mean["hidden_communication_ms"], mean["exposed_communication_ms"]
    whole = hidden + exposed
    return Picture(
        step=int(mean.index[-1]),
        title=_title(mean),
        sources={
            "bars": live_canvas.bars(rows),
            "marks": live_canvas.marks(change_marks(moment.history.changes, bounds, top)),
            "share": {
                "x": numbers(mean.index),
                "y": numbers(hidden / whole.where(whole > 0)),
            },
        },
        x=bounds,
        y=(0.0, top),
        height_px=_HEIGHT_PX,
        y_label=cut_label(_Y_LABEL, cut),
    )


def _bars(step: int, step_ms: float, exposed_ms: float, ranks: str) -> list[dict[str, Any]]:
    common = {
        "step": step,
        "left": step - 0.45,
        "right": step + 0.45,
        "head": f"step {step}: {duration(step_ms)}",
        "detail": ranks,
    }
    if np.isnan(exposed_ms):
        time = "how much was exposed is not known"
        return [{**common, "kind": "unsplit", "bottom": 0.0, "top": step_ms, "time": time}]
    computed_ms = max(step_ms - exposed_ms, 0.0)
    time = f"computes {duration(computed_ms)}, exposed {duration(exposed_ms)} (mean of ranks)"
    return [
        {**common, "kind": "compute", "bottom": 0.0, "top": computed_ms, "time": time},
        {**common, "kind": "exposed", "bottom": computed_ms, "top": step_ms, "time": time},
    ]


def _line(step_ms: float, exposed_ms: float, hidden_ms: float) -> str:
    exposed, hidden = duration(exposed_ms), duration(hidden_ms)
    return f"{duration(step_ms)}, exposed {exposed}, hidden {hidden}"


def _title(mean: pd.DataFrame) -> str:
    last = mean.iloc[-1]
    step = f"step {mean.index[-1]}: {duration(last['step_ms'])}"
    share = (mean["exposed_communication_ms"] / mean["step_ms"]).to_numpy()
    if np.isnan(share[-1]):
        return f"{step}; how much communication was exposed is not known"
    told = f"{step}, {share[-1]:.0%} of it exposed communication"
    known = share[np.isfinite(share)]
    if len(known) < 3:
        return told
    return f"{told} (median of {len(known)} steps {np.median(known):.0%})"


def _nothing(moment: Moment) -> Picture:
    return Picture(
        step=-1 if moment.step is None else moment.step,
        title=moment.hint if moment.step is None else "no step was completed yet",
        sources={
            "bars": live_canvas.bars([]),
            "marks": live_canvas.marks([]),
            "share": {"x": numbers([]), "y": numbers([])},
        },
        x=step_bounds([]),
        y=(0.0, 1.0),
        height_px=_HEIGHT_PX,
        y_label=_Y_LABEL,
        empty=True,
    )


VIEW = LiveView("steps", draw, picture)
