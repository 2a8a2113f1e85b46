"""The live timeline: one step of all ranks, in the same figure as :mod:`ddpviz.views.timeline`."""

from __future__ import annotations

import re
from typing import Any, cast

import numpy as np
import pandas as pd
from bokeh.models import TapTool

from ddpviz.views.figure import axis_label, contents, step_figure, themed, x_bounds
from ddpviz.views.lanes import Lane
from ddpviz.views.live import (
    LiveFigure,
    LiveView,
    Moment,
    Picture,
    numbers,
    untypeset,
)
from ddpviz.views.rows import Rows, build_rows
from ddpviz.views.source import read_run

#: Columns that no glyph and no hover of the figure reads.
_UNUSED = {"derived", "rank"}
_EMPTY_HEIGHT_PX = 140.0
#: How the label of a bucket's lane ends.
_BUCKET = re.compile(r"bucket (\d+)  \S+ \S+$")


def draw() -> LiveFigure:
    """The figure without a step."""
    drawn = step_figure(_nothing("nothing recorded yet"))
    spans = [one for one in drawn.plot.renderers if one.data_source is drawn.sources["spans"]]
    drawn.plot.add_tools(TapTool(renderers=spans))
    return LiveFigure(drawn.plot, drawn.sources, lambda theme: themed(drawn, theme))


def picture(moment: Moment) -> Picture:
    """The moment's step; where there is none, what to do."""
    if moment.step is None:
        return _pictured(_nothing(moment.hint), "")
    before = [change.text for change in moment.history.changes if change.step == moment.step]
    remark = f"configured before this step: {'; '.join(before)}" if before else ""
    rows = build_rows(read_run(cast(Any, moment.source)).source(moment.step))
    remark = "; ".join(part for part in (remark, rows.note) if part)
    return _pictured(rows, remark)


def _pictured(rows: Rows, remark: str) -> Picture:
    sources = contents(rows)
    buckets = _buckets(rows.lanes)
    middles = (rows.spans["top"] + rows.spans["bottom"]) / 2
    sources["spans"]["bucket"] = numbers([buckets.get(round(y, 3), -1) for y in middles])
    label = axis_label(rows) if rows.lanes else ""
    return Picture(
        step=rows.step,
        title=rows.title,
        sources={
            name: {key: _column(values) for key, values in columns.items() if key not in _UNUSED}
            for name, columns in sources.items()
        },
        x=x_bounds(rows),
        y=(rows.height_px, 0.0),
        height_px=round(rows.height_px),
        x_label="      ".join(part for part in (label, remark) if part),
        y_labels=[(lane.middle, untypeset(lane.label)) for lane in rows.lanes],
        empty=not rows.lanes,
    )


def _column(values: Any) -> Any:
    return numbers(values) if isinstance(values, np.ndarray) else values


def _buckets(lanes: tuple[Lane, ...]) -> dict[float, int]:
    """Launch order of the bucket whose lane has this middle, to link what shows the same bucket."""
    found = {round(lane.middle, 3): _BUCKET.search(lane.label) for lane in lanes}
    return {middle: int(match[1]) for middle, match in found.items() if match}


def _nothing(title: str) -> Rows:
    span = ["kind", "rank", "left", "right", "top", "bottom", "derived"]
    hover = ["head", "time", "detail"]
    return Rows(
        step=0,
        title=title,
        spans=_empty(span + hover, texts=("kind", *hover)),
        ticks=_empty(["rank", "x", "top", "bottom", *hover], texts=hover),
        marks=_empty(["rank", "x", "top", *hover], texts=hover),
        exposed=_empty(["rank", "left", "right", "top", "bottom", *hover], texts=hover),
        labels=_empty(["x", "y", "text", "align", "baseline"], ("text", "align", "baseline")),
        lanes=(),
        height_px=_EMPTY_HEIGHT_PX,
        begin_ms=0.0,
        end_ms=1.0,
        note="",
    )


def _empty(names: list[str], texts: Any) -> pd.DataFrame:
    return pd.DataFrame(
        {name: pd.Series([], dtype=object if name in texts else "float64") for name in names}
    )


VIEW = LiveView("timeline", draw, picture, of_step=True)
