"""The quiet figure that views beside the timeline are drawn on: bars and lanes of quads."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from bokeh.models import (
    CDSView,
    ColumnDataSource,
    Glyph,
    GlyphRenderer,
    GroupFilter,
    Legend,
    LegendItem,
    Line,
    Quad,
    Range1d,
    Segment,
    TapTool,
    Title,
)
from bokeh.plotting import figure

from ddpviz.views.columns import Columns, columns
from ddpviz.views.live import Pairs
from ddpviz.views.look import FONT, HATCH, add_tools, quiet_axes, themed_texts
from ddpviz.views.palette import Theme

#: Columns of the sources of bars and of marks.
BAR_COLUMNS = ("kind", "left", "right", "top", "bottom", "step", "head", "time", "detail")
MARK_COLUMNS = ("x", "top", "bottom", "head", "time", "detail")
TEXTS = ("kind", "head", "time", "detail", "text", "align", "baseline")


@dataclasses.dataclass(frozen=True)
class Kind:
    """How bars of one kind look. ``colour``: None takes the theme's of exposed communication.

    ``hatched``: derived or beyond a limit. Kinds without ``label`` are not in the legend, those
    that are ``rare`` only where there are such bars.
    """

    label: str
    colour: str | None
    hatched: bool = False
    rare: bool = False


@dataclasses.dataclass(frozen=True)
class Canvas:
    """The figure, its sources "bars" and "marks", and the renderers by name.

    ``rare``: entries of the legend by the kind that they are shown for, or "marks".
    """

    plot: figure
    sources: dict[str, ColumnDataSource]
    drawn: dict[str, GlyphRenderer]
    kinds: Mapping[str, Kind]
    rare: Mapping[str, LegendItem]

    def themed(self, theme: Theme) -> Pairs:
        """What the theme sets."""
        plot = self.plot
        pairs: Pairs = [
            *themed_texts(plot, theme),
            (plot.xgrid[0], {"grid_line_color": theme.grid}),
            (plot.ygrid[0], {"grid_line_color": theme.grid}),
            *(
                (self.drawn[key].glyph, {"line_color": theme.quiet_text})
                for key in ("marks", "key marks")
                if key in self.drawn
            ),
        ]
        for name, kind in self.kinds.items():
            for key in (name, f"key {name}"):
                if key not in self.drawn:
                    continue
                glyph = self.drawn[key].glyph
                if kind.colour is None:
                    pairs.append((glyph, {"fill_color": theme.exposed_line}))
                elif kind.hatched:
                    pairs.append((glyph, {"hatch_color": theme.hatch}))
        return pairs


def canvas(
    kinds: Mapping[str, Kind], *, x_label: str, y_label: str, height_px: int, marks: str = ""
) -> Canvas:
    """An empty figure with bars of these kinds, from the back to the front, and marks on them.

    ``marks``: what they are, for the legend.
    """
    plot = figure(
        title=Title(text="", text_font_size="13px", text_font=FONT),
        x_range=Range1d(0, 1),
        y_range=Range1d(0, 1),
        frame_height=height_px,
        sizing_mode="stretch_width",
        min_width=280,
        tools="",
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        min_border_right=16,
    )
    sources = {
        "bars": ColumnDataSource(columns(BAR_COLUMNS, [], TEXTS)),
        "marks": ColumnDataSource(columns(MARK_COLUMNS, [], TEXTS)),
    }
    edges: dict[str, Any] = {side: side for side in ("left", "right", "top", "bottom")}
    drawn = {}
    for name, kind in kinds.items():
        drawn[name] = plot.add_glyph(sources["bars"], _quad(kind, edges), name=name)
        drawn[name].view = CDSView(filter=GroupFilter(column_name="kind", group=name))
    drawn["marks"] = plot.add_glyph(sources["marks"], _upright(), name="marks")
    hovered = list(drawn.values())
    keys, items = _legend(plot, kinds)
    drawn |= keys
    rare = {name: item for name, item in items.items() if kinds[name].rare}
    if marks:
        drawn["key marks"], rare["marks"] = legend_line(plot, _upright(), marks)
    plot.xaxis.axis_label, plot.yaxis.axis_label = x_label, y_label
    quiet_axes(plot, "11px")
    tap = TapTool(renderers=[drawn[name] for name in kinds])
    add_tools(plot, hovered, tap)
    return Canvas(plot, sources, drawn, kinds, rare)


def bars(rows: list[dict[str, Any]]) -> Columns:
    """Rows of bars as the source has them."""
    return columns(BAR_COLUMNS, rows, TEXTS)


def marks(rows: list[dict[str, Any]]) -> Columns:
    """Rows of marks as the source has them."""
    return columns(MARK_COLUMNS, rows, TEXTS)


def legend_line(plot: figure, line: Glyph, label: str) -> tuple[GlyphRenderer, LegendItem]:
    """An entry at the end of the legend, for a line that a picture may have; not shown yet."""
    # BokehJS has no swatch for segments: a line that is nowhere stands for them.
    nowhere = ColumnDataSource({"x": [math.nan]})
    swatch = Line(x="x", y="x", line_width=line.line_width, line_dash=line.line_dash)
    renderer = plot.add_glyph(nowhere, swatch, name=f"key {label}")
    item = LegendItem(label=label, renderers=[renderer], visible=False)
    (legend,) = plot.legend
    legend.items = [*legend.items, item]
    return renderer, item


def _upright() -> Segment:
    return Segment(x0="x", x1="x", y0="top", y1="bottom", line_width=1.5, line_dash="dotted")


def _quad(kind: Kind, edges: dict[str, Any]) -> Glyph:
    if kind.colour is None:
        return Quad(**edges, line_color=None)  # 200 outlines would be all that is seen
    hatch: dict[str, Any] = {"hatch_pattern": "/", **HATCH} if kind.hatched else {}
    colour = kind.colour
    return Quad(**edges, fill_color=colour, line_color=colour, line_width=0.75, **hatch)


def _legend(
    plot: figure, kinds: Mapping[str, Kind]
) -> tuple[dict[str, GlyphRenderer], dict[str, LegendItem]]:
    """Entries for all kinds, whatever the data has; their renderers are named "key …"."""
    nowhere = ColumnDataSource({"x": [math.nan]})
    edges: dict[str, Any] = dict.fromkeys(("left", "right", "top", "bottom"), "x")
    named = {name: kind for name, kind in kinds.items() if kind.label}
    renderers = {
        f"key {name}": plot.add_glyph(nowhere, _quad(kind, edges), name=f"key {name}")
        for name, kind in named.items()
    }
    items = {
        name: LegendItem(
            label=kind.label, renderers=[renderers[f"key {name}"]], visible=not kind.rare
        )
        for name, kind in named.items()
    }
    legend = Legend(
        items=list(items.values()),
        orientation="horizontal",
        location="left",
        border_line_color=None,
        background_fill_color=None,
        label_text_font_size="11px",
        label_text_font=FONT,
        glyph_width=16,
        glyph_height=14,
        label_standoff=4,
        spacing=10,
        padding=0,
        margin=2,
    )
    plot.add_layout(legend, "above")
    return renderers, items
