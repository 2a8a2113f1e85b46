"""The live timeline: one step of all ranks, in the same figure as :mod:`ddpviz.views.timeline`."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from bokeh.models import TapTool

from ddpviz.views.columns import Columns, numbers
from ddpviz.views.figure import axis_label, contents, step_figure, themed, x_bounds
from ddpviz.views.legend import drawn_of, entries
from ddpviz.views.live import LiveFigure, LiveView, Moment, Picture, untypeset
from ddpviz.views.rows import Rows, build_rows, tables
from ddpviz.views.source import read_run

_EMPTY_HEIGHT_PX = 140.0
#: A figure narrower than this has short texts.
_NARROW_PX = 600
#: Room that the labels of lanes take, and mean width of a bold letter at 11 px.
_MARGIN_PX, _LETTER_PX = 150, 6.2


def draw() -> LiveFigure:
    """The figure without a step."""
    drawn = step_figure(_nothing("nothing recorded yet"))
    spans = [one for one in drawn.plot.renderers if one.data_source is drawn.sources["spans"]]
    drawn.plot.add_tools(TapTool(renderers=spans))
    items = dict(zip(entries(), drawn.plot.legend[0].items, strict=True))
    return LiveFigure(
        drawn.plot, drawn.sources, lambda theme: themed(drawn, theme), items, drawn_of
    )


def picture(moment: Moment) -> Picture:
    """The moment's step; where there is none, what to do."""
    if moment.step is None:
        return _pictured(_nothing(moment.hint), "", moment.width_px)
    before = [change.text for change in moment.history.changes if change.step == moment.step]
    remark = f"configured before this step: {'; '.join(before)}" if before else ""
    source = read_run(cast(Any, moment.source)).source(moment.step)
    rows = build_rows(source, findings=moment.findings)
    remark = "; ".join(part for part in (remark, rows.note) if part)
    return _pictured(rows, remark, moment.width_px)


def _pictured(rows: Rows, remark: str, width_px: int) -> Picture:
    sources = contents(rows)
    sources["labels"] = _apart(rows, width_px)
    # To link what shows the same bucket: that of the lane that a span stands in the middle of.
    buckets = {round(lane.middle, 3): lane.bucket for lane in rows.lanes}
    middles = ((rows.spans["top"] + rows.spans["bottom"]) / 2).tolist()
    sources["spans"]["bucket"] = numbers([buckets.get(round(y, 3), -1) for y in middles])
    label = axis_label(rows, brief=width_px < _NARROW_PX) if rows.lanes else ""
    return Picture(
        step=rows.step,
        title=rows.title,
        sources=sources,
        x=x_bounds(rows),
        y=(rows.height_px, 0.0),
        height_px=round(rows.height_px),
        x_label="      ".join(part for part in (label, remark) if part),
        y_labels=[(lane.middle, untypeset(lane.label)) for lane in rows.lanes],
        empty=not rows.lanes,
    )


def _apart(rows: Rows, width_px: int) -> Columns:
    """The labels that do not lie on an earlier one where the figure is so wide: longest first."""
    start, end = x_bounds(rows)
    ms_per_px = (end - start) / max(width_px - _MARGIN_PX, 1)
    taken: list[tuple[float, float, float]] = []
    kept = []
    found = (rows.labels[name] for name in ("x", "y", "text", "align"))
    for x, y, text, align in zip(*found, strict=True):
        reach = len(text) * _LETTER_PX * ms_per_px
        left = x - reach * {"left": 0.0, "center": 0.5, "right": 1.0}[align]
        kept.append(not any(y == other and left < b and left + reach > a for other, a, b in taken))
        taken += [(y, left, left + reach)] if kept[-1] else []
    return {
        name: values[np.array(kept, bool)]
        if isinstance(values, np.ndarray)
        else [value for value, keep in zip(values, kept, strict=True) if keep]
        for name, values in rows.labels.items()
    }


def _nothing(title: str) -> Rows:
    return Rows(
        step=0,
        title=title,
        **tables(),
        lanes=(),
        height_px=_EMPTY_HEIGHT_PX,
        begin_ms=0.0,
        end_ms=1.0,
        note="",
    )


VIEW = LiveView("timeline", draw, picture, of_step=True)
