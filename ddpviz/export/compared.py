"""Configurations side by side: a bar for each median, with its noise, and the numbers below."""

from __future__ import annotations

from collections.abc import Hashable
from html import escape
from typing import TYPE_CHECKING, Any

import pandas as pd
from bokeh.models import ColumnDataSource, HBar, Range1d, Segment, Title
from bokeh.plotting import figure

from ddpviz.views.follow import colour_plot
from ddpviz.views.live import Pairs, lane_axis, title_text, untypeset
from ddpviz.views.look import add_tools, quiet_axes, themed_texts
from ddpviz.views.palette import Theme
from ddpviz.views.text import duration, shortened, size

if TYPE_CHECKING:
    from ddpviz.analysis.compare import Comparison

_PITCH_PX = 30
_COLOUR = "#009E73"
_MOST_LETTERS = 40
_UNKNOWN = "–"


def bars(comparison: Comparison, theme: str, *, titled: bool = False) -> figure:
    """A bar per configuration that ran: the median step, and the medians of its rounds.

    ``titled``: the verdict stands above.
    """
    rows = comparison.table.to_dict("records")
    run = [row for row in rows if row["step_ms"] == row["step_ms"]]
    columns: dict[str, list[Any]] = {
        "y": [_PITCH_PX * (place + 0.5) for place in range(len(run))],
        "right": [row["step_ms"] for row in run],
        "low": [row["step_ms_low"] for row in run],
        "high": [row["step_ms_high"] for row in run],
        "head": [f"{row['configuration']}: {duration(row['step_ms'])} per step" for row in run],
        "time": [
            f"medians of rounds: {duration(row['step_ms_low'])} to {duration(row['step_ms_high'])}"
            for row in run
        ],
        "detail": [_detail(row) for row in run],
    }
    height = _PITCH_PX * max(len(run), 1)
    end = max([*columns["high"], *columns["right"]], default=1.0)
    plot = figure(
        title=Title(text=title_text(comparison.verdict) if titled else "", visible=titled),
        x_range=Range1d(0, 1.05 * end),
        y_range=Range1d(height, 0),
        frame_height=height,
        sizing_mode="stretch_width",
        min_width=640,
        tools="",
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        min_border_right=24,
    )
    source = ColumnDataSource(columns)
    bar = HBar(y="y", left=0, right="right", height=0.6 * _PITCH_PX, fill_color=_COLOUR)
    bar.line_color = None
    noise = Segment(x0="low", x1="high", y0="y", y1="y", line_width=4)
    drawn = [plot.add_glyph(source, bar, name="bars"), plot.add_glyph(source, noise, name="noise")]
    lane_axis(plot)
    plot.yaxis[0].ticker.ticks = columns["y"]
    named = [untypeset(shortened(str(row["configuration"]), _MOST_LETTERS)) for row in run]
    plot.yaxis[0].major_label_overrides = dict(zip(columns["y"], named, strict=True))
    plot.xaxis.axis_label = "ms per step of the slowest rank: median, and the noise between rounds"
    plot.ygrid.visible = False
    quiet_axes(plot, "12px")
    plot.title.text_font_size = "14px"
    add_tools(plot, drawn)

    def themed(one: Theme) -> Pairs:
        return [
            *themed_texts(plot, one),
            (plot.xgrid[0], {"grid_line_color": one.grid}),
            (noise, {"line_color": one.text}),
        ]

    colour_plot(plot, themed, theme)
    return plot


def _detail(row: dict[Hashable, Any]) -> str:
    return (
        f"hidden {_duration(row['hidden_communication_ms'])}, "
        f"exposed {_duration(row['exposed_communication_ms'])}\n"
        f"{row['collectives']:.3g} collectives, {size(row['bytes'])} per step and rank"
    )


def numbers(comparison: Comparison) -> str:
    """An HTML table, a row per configuration."""
    headers = ("configuration", "place", "step", "hidden", "exposed", "collectives", "bytes")
    first, *others = headers
    head = f'<th class="text">{first}</th>' + "".join(f"<th>{header}</th>" for header in others)
    body = "".join(f"<tr>{_row(row)}</tr>" for row in comparison.table.to_dict("records"))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _row(row: dict[Hashable, Any]) -> str:
    name = f'<td class="text">{escape(str(row["configuration"]))}</td>'
    if row["refused"] and row["step_ms"] != row["step_ms"]:
        return f'{name}<td class="text" colspan="6">refused: {escape(row["refused"])}</td>'
    cells = (
        _UNKNOWN if pd.isna(row["place"]) else f"{row['place']}",
        _duration(row["step_ms"]),
        _duration(row["hidden_communication_ms"]),
        _duration(row["exposed_communication_ms"]),
        f"{row['collectives']:.3g}",
        size(row["bytes"]),
    )
    return name + "".join(f"<td>{escape(cell)}</td>" for cell in cells)


def _duration(ms: float) -> str:
    return duration(ms) if ms == ms else _UNKNOWN
