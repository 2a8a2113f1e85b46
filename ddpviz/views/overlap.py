"""Hidden and exposed communication of the last steps."""

from __future__ import annotations

import functools

import numpy as np

from ddpviz.views import live_canvas
from ddpviz.views.columns import Row
from ddpviz.views.live import HISTORY_STEPS, LiveFigure, LiveView, Moment, Picture
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
from ddpviz.views.text import EXPOSED, HIDDEN, duration

_HEIGHT_PX = 240
_KINDS = {
    "hidden": Kind("hidden behind backward", "#0072B2"),
    "exposed": Kind("exposed", None),
}
_Y_LABEL = "ms of communication, mean of ranks"
_X_LABEL = "step"
#: Columns of :func:`ddpviz.analysis.steps` that are drawn.
_TOLD = ("hidden_communication_ms", "exposed_communication_ms")


def draw() -> LiveFigure:
    """The figure without steps."""
    drawn = live_canvas.canvas(
        _KINDS, x_label=_X_LABEL, y_label=_Y_LABEL, height_px=_HEIGHT_PX, marks=CHANGES
    )
    step_axis(drawn.plot)
    return LiveFigure(drawn.plot, drawn.sources, drawn.themed, drawn.rare)


def picture(moment: Moment) -> Picture:
    """A bar per step: hidden below, exposed on it."""
    table, bins = binned(moment.history.steps, _TOLD)
    means = np.array(mean_of_ranks(table, _TOLD))
    steps, hidden_ms, exposed_ms = means[:, ~np.isnan(means).any(axis=0)]
    told = by_step(table, _line, _TOLD)
    rows: list[Row] = []
    places = bins.of(steps.astype(np.int64))
    lasts = bins.last[places]
    for place, last, hidden, exposed in zip(
        places.tolist(), lasts.tolist(), hidden_ms.tolist(), exposed_ms.tolist(), strict=True
    ):
        step = int(bins.first[place])
        rows += _bars(step, last, bins.named(place), hidden, exposed, told[step])
    top, cut = top_of(hidden_ms + exposed_ms)
    shown = np.append(steps, lasts[-1:])
    bounds = step_bounds(shown)
    return Picture(
        step=int(lasts[-1]) if len(steps) else -1 if moment.step is None else moment.step,
        title=_title(moment),
        sources={
            "bars": live_canvas.bars(rows),
            "marks": live_canvas.marks(change_marks(moment.history.changes, bounds, top)),
        },
        x=bounds,
        x_until=last_of(shown),
        y=(0.0, top),
        height_px=_HEIGHT_PX,
        x_label=steps_label(bins, cut),
        empty=not len(steps),
    )


@functools.lru_cache(maxsize=HISTORY_STEPS * 4)
def _bars(
    step: int, last: int, named: str, hidden_ms: float, exposed_ms: float, ranks: str
) -> tuple[Row, ...]:
    common = {
        "step": step,
        "left": step - 0.45,
        "right": last + 0.45,
        "detail": ranks,
    }
    each = " a step" if last > step else ""
    hidden = f"{named}: {duration(hidden_ms)} hidden{each}"
    exposed = f"{named}: {duration(exposed_ms)} exposed{each}"
    whole_ms = hidden_ms + exposed_ms
    return (
        {**common, "kind": "hidden", "bottom": 0, "top": hidden_ms, "head": hidden, "time": HIDDEN},
        {
            **common,
            "kind": "exposed",
            "bottom": hidden_ms,
            "top": whole_ms,
            "head": exposed,
            "time": EXPOSED,
        },
    )


@functools.lru_cache(maxsize=HISTORY_STEPS * 16)
def _line(hidden_ms: float, exposed_ms: float) -> str:
    return f"hidden {duration(hidden_ms)}, exposed {duration(exposed_ms)}"


def _title(moment: Moment) -> str:
    means = np.array(mean_of_ranks(moment.history.steps, _TOLD))
    _, hidden_ms, exposed_ms = means[:, ~np.isnan(means).any(axis=0)]
    if moment.step is None and moment.history.steps.empty:
        return moment.hint
    if moment.history.steps.empty:
        return "no step was completed yet"
    if not len(hidden_ms):
        return "how much communication is hidden is not known: its completions were not seen"
    hidden = hidden_ms.sum()
    whole = hidden + exposed_ms.sum()
    steps = "step" if len(hidden_ms) == 1 else f"{len(hidden_ms)} steps"
    if whole <= 0:
        return f"no communication in the last {steps}"
    return f"{hidden / whole:.0%} of communication hidden behind backward in the last {steps}"


VIEW = LiveView("overlap", draw, picture, over_steps=True)
