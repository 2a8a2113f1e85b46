"""The figure of one step from its rows, and what a theme or another step changes on it."""

from __future__ import annotations

import dataclasses
from typing import Any

from bokeh.models import (
    BoxZoomTool,
    CDSView,
    ColumnDataSource,
    FixedTicker,
    Glyph,
    GlyphRenderer,
    GroupFilter,
    PlainText,
    Quad,
    Range1d,
    Scatter,
    Segment,
    Text,
    Title,
)
from bokeh.plotting import figure

from ddpviz.views.columns import Columns
from ddpviz.views.legend import FLAG, add_legend
from ddpviz.views.look import FONT, HATCH, add_tools, quiet_axes, themed_texts
from ddpviz.views.palette import SPANS, Theme
from ddpviz.views.rows import Rows
from ddpviz.views.source import is_construction

_HATCH: dict[str, Any] = {"hatch_pattern": "/", **HATCH}
_HATCHED = "hatched"
#: Characters of a title that fit beside each other at 1366 px.
_LONGEST_TITLE = 140
#: Columns of rows that no glyph and no hover reads.
_NOT_DRAWN = frozenset({"derived", "rank"})
#: What makes BokehJS typeset a text as mathematics.
_TEX = ("$$", r"\[", r"\(")


@dataclasses.dataclass(frozen=True)
class StepFigure:
    """A figure, the sources that another step changes and the glyphs that a theme changes."""

    plot: figure
    sources: dict[str, ColumnDataSource]
    glyphs: dict[str, Glyph]


def contents(rows: Rows) -> dict[str, Columns]:
    """Columns of the figure's sources by name, those of :class:`Rows` that it draws or tells."""
    drawn = {
        name: {key: values for key, values in table.items() if key not in _NOT_DRAWN}
        for name, table in rows.tables.items()
    }
    drawn["spans"]["hatch"] = ["/" if derived else " " for derived in rows.spans["derived"]]
    return drawn


def axis_label(rows: Rows, *, brief: bool = False) -> str:
    """Text under the time axis: what its zero is, unless it is to be brief, and which step."""
    if is_construction(rows.step):
        return "ms" if brief else "ms since the first rank began the construction"
    since = "" if brief else " since the step began on the lowest rank"
    return f"ms{since}      (step {rows.step})"


def lane_labels(rows: Rows) -> tuple[list[float], dict[float | str, Any]]:
    """Where the lanes' labels stand on the vertical axis, and their texts."""
    return (
        [lane.middle for lane in rows.lanes],
        {lane.middle: plain(lane.label) for lane in rows.lanes},
    )


def step_figure(rows: Rows) -> StepFigure:
    """One step as a figure; :func:`apply_theme` gives it its colours."""
    plot = figure(
        title=Title(text=title_text(rows), text_font_size="15px", text_font=FONT),
        x_range=Range1d(*x_bounds(rows)),
        y_range=Range1d(rows.height_px, 0),
        frame_height=round(rows.height_px),
        sizing_mode="stretch_width",
        min_width=640,
        tools="",
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        min_border_right=24,
    )
    sources = {name: ColumnDataSource(columns) for name, columns in contents(rows).items()}
    drawn = _draw(plot, sources)
    _axes(plot, rows)
    zoom = BoxZoomTool(dimensions="width")
    add_tools(plot, [drawn[name] for name in (*SPANS, "exposed", "ticks", "marks", "flags")], zoom)
    plot.toolbar.active_drag = zoom
    drawn |= add_legend(plot, rows, sources, _HATCH)
    return StepFigure(plot, sources, {name: renderer.glyph for name, renderer in drawn.items()})


def title_text(rows: Rows) -> str | PlainText:
    """The title, cut where it would leave the figure (an error's text can be long)."""
    whole = " ".join(rows.title.split())
    return plain(whole if len(whole) <= _LONGEST_TITLE else whole[: _LONGEST_TITLE - 1] + "…")


def plain(text: str) -> str | PlainText:
    """The text such that BokehJS draws it as it is: a name may look like TeX."""
    return PlainText(text) if any(mark in text for mark in _TEX) else text


def x_bounds(rows: Rows) -> tuple[float, float]:
    """Range of the time axis in ms: the step with a little air on both sides."""
    air = 0.01 * (rows.end_ms - rows.begin_ms)
    return rows.begin_ms - air, rows.end_ms + air


def _draw(plot: figure, sources: dict[str, ColumnDataSource]) -> dict[str, GlyphRenderer]:
    """What is drawn, by name, from the back to the front."""
    edges: dict[str, Any] = {side: side for side in ("left", "right", "top", "bottom")}
    glyphs: dict[str, Glyph] = {"exposed": Quad(**edges, line_dash="dashed")}
    for kind, (colour, _) in SPANS.items():
        # A line of the same colour keeps what is shorter than a pixel visible.
        glyphs[kind] = Quad(**edges, fill_color=colour, line_color=colour, line_width=0.75)
    # On top of what was derived. Not a pattern for each row of a kind: BokehJS makes a canvas for
    # each of those, blank ones too, whenever the data changes.
    glyphs[_HATCHED] = Quad(**edges, fill_color=None, line_color=None, **_HATCH)
    glyphs["ticks"] = Segment(x0="x", x1="x", y0="top", y1="bottom", line_width=1.25)
    glyphs["marks"] = Scatter(x="x", y="top", marker="diamond", size=11)
    glyphs["flags"] = Scatter(x="x", y="top", **FLAG)
    glyphs["labels"] = Text(
        x="x",
        y="y",
        text="text",
        text_align="align",
        text_baseline="baseline",
        text_font_size="11px",
        text_font_style="bold",
        text_font={"value": FONT},
    )
    renderers = {}
    for name, glyph in glyphs.items():
        source = sources["spans" if name in (*SPANS, _HATCHED) else name]
        renderers[name] = plot.add_glyph(source, glyph, name=name)
        if name in SPANS:
            renderers[name].view = CDSView(filter=GroupFilter(column_name="kind", group=name))
    renderers[_HATCHED].view = CDSView(filter=GroupFilter(column_name="hatch", group="/"))
    return renderers


def _axes(plot: figure, rows: Rows) -> None:
    positions, texts = lane_labels(rows)
    plot.yaxis.ticker = FixedTicker(ticks=positions)
    plot.yaxis.major_label_overrides = texts
    plot.xaxis.axis_label = axis_label(rows)
    plot.ygrid.visible = False
    quiet_axes(plot, "12px")


def apply_theme(drawn: StepFigure, theme: Theme) -> None:
    """Give the figure the theme's colours."""
    for model, values in themed(drawn, theme):
        model.update(**values)


def themed(drawn: StepFigure, theme: Theme) -> list[tuple[Any, dict[str, Any]]]:
    """Models of the figure and the properties that the theme sets on them.

    A list and not a side effect, because a page changes its theme in the browser.
    """
    plot = drawn.plot
    glyphs = drawn.glyphs
    box = {"fill_color": theme.exposed_fill, "line_color": theme.exposed_line}
    mark = {"fill_color": theme.text, "line_color": theme.background}
    flag = {"fill_color": theme.wrong, "line_color": theme.background}
    pairs: list[tuple[Any, dict[str, Any]]] = [
        *themed_texts(plot, theme),
        (plot.xgrid[0], {"grid_line_color": theme.grid}),
        (glyphs["ticks"], {"line_color": theme.tick}),
        (glyphs["labels"], {"text_color": theme.exposed_text}),
        (glyphs["exposed"], box),
        (glyphs["key exposed"], box),
        (glyphs["marks"], mark),
        (glyphs["key marks"], mark),
        (glyphs["flags"], flag),
        (glyphs["key flags"], flag),
        (glyphs["key ticks"], {"hatch_color": theme.tick}),
        (glyphs["key derived"], {"hatch_color": theme.text, "line_color": theme.quiet_text}),
    ]
    pairs.append((glyphs[_HATCHED], {"hatch_color": theme.hatch}))
    return pairs
