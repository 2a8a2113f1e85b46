"""Step time over the last steps, split in what was computed and what was exposed."""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd
from bokeh.models import ColumnDataSource, LegendItem, Line, LinearAxis, Range1d

from ddpviz.views import live_canvas
from ddpviz.views.columns import Row, numbers
from ddpviz.views.live import HISTORY_STEPS, LiveFigure, LiveView, Moment, Pairs, Picture
from ddpviz.views.live_canvas import Kind
from ddpviz.views.live_steps import (
    CHANGES,
    binned,
    by_step,
    change_marks,
    last_of,
    mean_of_ranks,
    step_axis,
    step_bounds,
    steps_label,
    top_of,
)
from ddpviz.views.palette import Theme
from ddpviz.views.text import duration

_HEIGHT_PX = 120
_KINDS = {
    "compute": Kind("computes", "#009E73"),
    "exposed": Kind("exposed", None),
    "unsplit": Kind("step time, split not known", "#999999", hatched=True, rare=True),
}
_Y_LABEL = "ms per step"
_X_LABEL = "step"
#: Name of the second vertical range, of shares from 0 to 1.
_SHARES = "shares"
#: Columns of :func:`ddpviz.analysis.steps` that are drawn and told.
_TOLD = ("step_ms", "exposed_communication_ms", "hidden_communication_ms")
_SHARE_LABEL = "hidden communication, right"


def draw() -> LiveFigure:
    """The figure without steps."""
    drawn = live_canvas.canvas(
        _KINDS, x_label=_X_LABEL, y_label=_Y_LABEL, height_px=_HEIGHT_PX, marks=CHANGES
    )
    plot = drawn.plot
    step_axis(plot)
    share = ColumnDataSource({"x": numbers([]), "y": numbers([])})
    plot.extra_y_ranges = {_SHARES: Range1d(0, 1)}
    axis = LinearAxis(y_range_name=_SHARES)
    axis.ticker = [0, 0.5, 1]
    axis.major_label_overrides = {0: "0 %", 0.5: "50 %", 1: "100 %"}
    first = plot.yaxis[0]
    for name in ("axis_line_color", "major_tick_line_color", "minor_tick_line_color"):
        setattr(axis, name, None)
    for name in ("major_label_text_font_size", "major_label_text_font"):
        setattr(axis, name, getattr(first, name))
    plot.add_layout(axis, "right")
    line = plot.add_glyph(share, Line(x="x", y="y", line_width=1.5), name="share")
    line.y_range_name = _SHARES
    plot.legend[0].items.append(LegendItem(label=_SHARE_LABEL, renderers=[line]))

    def themed(theme: Theme) -> Pairs:
        return [*drawn.themed(theme), (line.glyph, {"line_color": theme.quiet_text})]

    return LiveFigure(plot, {**drawn.sources, "share": share}, themed, drawn.rare)


def picture(moment: Moment) -> Picture:
    """Bars of the last steps; the step that is shown elsewhere names itself in the title."""
    if moment.history.steps.empty:
        return _nothing(moment)
    each = _known(moment.history.steps)
    if not len(each[0]):
        return _nothing(moment)
    table, bins = binned(moment.history.steps, _TOLD)
    steps, step_ms, exposed_ms, hidden_ms = _known(table)
    told = by_step(table, _line, _TOLD)
    rows: list[Row] = []
    places = bins.of(steps.astype(np.int64))
    lasts = bins.last[places]
    for place, last, whole, exposed in zip(
        places.tolist(), lasts.tolist(), step_ms.tolist(), exposed_ms.tolist(), strict=True
    ):
        step = int(bins.first[place])
        rows += _bars(step, last, bins.named(place), whole, exposed, told[step])
    top, cut = top_of(step_ms)
    shown = np.append(steps, lasts[-1:])
    bounds = step_bounds(shown)
    all_ms = hidden_ms + exposed_ms
    return Picture(
        step=int(lasts[-1]),
        title=_title(*each[:3]),
        sources={
            "bars": live_canvas.bars(rows),
            "marks": live_canvas.marks(change_marks(moment.history.changes, bounds, top)),
            "share": {
                "x": numbers((steps + lasts) / 2),
                "y": hidden_ms / np.where(all_ms > 0, all_ms, np.nan),
            },
        },
        x=bounds,
        x_until=last_of(shown),
        y=(0.0, top),
        height_px=_HEIGHT_PX,
        x_label=steps_label(bins, cut),
    )


@functools.lru_cache(maxsize=HISTORY_STEPS * 4)
def _bars(
    step: int, last: int, named: str, step_ms: float, exposed_ms: float, ranks: str
) -> tuple[Row, ...]:
    common = {
        "step": step,
        "left": step - 0.45,
        "right": last + 0.45,
        "head": f"{named}: {duration(step_ms)}{' a step' if last > step else ''}",
        "detail": ranks,
    }
    if np.isnan(exposed_ms):
        time = "how much was exposed is not known"
        return ({**common, "kind": "unsplit", "bottom": 0.0, "top": step_ms, "time": time},)
    computed_ms = max(step_ms - exposed_ms, 0.0)
    time = f"exposed {duration(exposed_ms)}, the rest {duration(computed_ms)} (mean of ranks)"
    return (
        {**common, "kind": "compute", "bottom": 0.0, "top": computed_ms, "time": time},
        {**common, "kind": "exposed", "bottom": computed_ms, "top": step_ms, "time": time},
    )


@functools.lru_cache(maxsize=HISTORY_STEPS * 16)
def _line(step_ms: float, exposed_ms: float, hidden_ms: float) -> str:
    exposed, hidden = duration(exposed_ms), duration(hidden_ms)
    return f"{duration(step_ms)}, exposed {exposed}, hidden {hidden}"


def _known(table: pd.DataFrame) -> np.ndarray:
    """Steps and means of ranks of the columns :data:`_TOLD`, where the step's time is known."""
    means = np.array(mean_of_ranks(table, _TOLD))
    return means[:, ~np.isnan(means[1])]


def _title(steps: np.ndarray, step_ms: np.ndarray, exposed_ms: np.ndarray) -> str:
    step = f"step {steps[-1]:.0f}: {duration(step_ms[-1])}"
    share = exposed_ms / step_ms
    if np.isnan(share[-1]):
        return f"{step}; how much communication was exposed is not known"
    told = f"{step}, {share[-1]:.0%} exposed"
    known = share[np.isfinite(share)]
    if len(known) < 3:
        return told
    return f"{told} (median of {len(known)} steps: {np.median(known):.0%})"


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
        empty=True,
    )


VIEW = LiveView("steps", draw, picture, over_steps=True)
