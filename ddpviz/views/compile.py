"""torch.compile and DDP: graphs, the buckets their gradients go into, and when these are sent."""

from __future__ import annotations

from collections.abc import Mapping
from math import nan
from typing import Any

from bokeh.models import (
    CDSView,
    ColumnDataSource,
    CustomJSTickFormatter,
    GroupFilter,
    LegendItem,
    Segment,
    Text,
)
from bokeh.plotting import figure

from ddpviz.views import lane_canvas, live_canvas
from ddpviz.views.columns import Columns, Row, columns
from ddpviz.views.compile_chart import chart_of
from ddpviz.views.compile_code import code_of
from ddpviz.views.compile_columns import draw_columns
from ddpviz.views.compile_facts import facts, finding, who, why_none
from ddpviz.views.live import LiveFigure, LiveView, Moment, Pairs, Picture, lane_axis, untypeset
from ddpviz.views.live_canvas import Kind as BarKind
from ddpviz.views.look import FONT
from ddpviz.views.palette import SPANS, Theme

_KINDS = {
    "forward": BarKind("forward graph", SPANS["forward"][0], rare=True),
    "backward": BarKind("its backward", SPANS["backward"][0], rare=True),
    "bucket": BarKind("", lane_canvas.QUIET),
    "reduced": BarKind("", lane_canvas.QUIET),
    "filling": BarKind(SPANS["filling"][1], SPANS["filling"][0], rare=True),
    "in_flight": BarKind(SPANS["in_flight"][1], SPANS["in_flight"][0], rare=True),
    "node": BarKind("node", lane_canvas.QUIET, rare=True),
    "all_reduce": BarKind("all-reduce", SPANS["transfer"][0], rare=True),
    "wait": BarKind("wait for one", SPANS["wait_for_rank"][0], rare=True),
    "fuse": BarKind("cat, split", SPANS["filling"][0], rare=True),
}
#: Boxes with a text on them.
_TINTED = {"forward": 0.3, "backward": 0.3, "bucket": 0.35, "reduced": 0.35}
_BARS = (
    "kind",
    "left",
    "right",
    "top",
    "bottom",
    "bucket",
    "rank",
    "head",
    "time",
    "detail",
    "reading",
)
_LINES = ("x0", "x1", "y0", "y1", "kind", "head", "time", "detail")
_LABELS = ("x", "y", "text", "quiet")
_TEXTS = frozenset({"kind", "head", "time", "detail", "text", "reading"})
_SEVERAL = SPANS["wait_for_rank"][0]
#: An axis that begins at 0, whatever lies left of it.
_FROM_ZERO = (0.0, 1e12)


def draw() -> LiveFigure:
    """The figure without a step."""
    drawn = live_canvas.canvas(
        _KINDS, x_label="", y_label="", height_px=lane_canvas.EMPTY_HEIGHT_PX
    )
    plot = drawn.plot
    drawn.sources["bars"].data = columns(_BARS, [], _TEXTS)
    lane_axis(plot)
    plot.ygrid.visible = False
    plot.xgrid[0].bounds = plot.xaxis[0].bounds = _FROM_ZERO
    plot.xaxis[0].formatter = CustomJSTickFormatter(code="return tick < 0 ? '' : `${tick}`")
    for bars in drawn.drawn.values():
        bars.nonselection_glyph = None  # a click shows code, and leaves the colours what they mean
    for name, alpha in _TINTED.items():
        for key in (name, f"key {name}"):
            if key in drawn.drawn:
                drawn.drawn[key].glyph.fill_alpha = alpha
    lines = ColumnDataSource(columns(_LINES, [], _TEXTS))
    glyphs = {}
    for kind, width in (("one", 1.0), ("several", 2.0)):
        glyphs[kind] = Segment(x0="x0", x1="x1", y0="y0", y1="y1", line_width=width)
        renderer = plot.add_glyph(lines, glyphs[kind], name=f"lines {kind}")
        renderer.view = CDSView(filter=GroupFilter(column_name="kind", group=kind))
        renderer.level = "underlay"
        plot.hover[0].renderers = [*plot.hover[0].renderers, renderer]
    glyphs["several"].line_color = _SEVERAL
    entries = {"several": _key(plot, "bucket waits for several graphs", glyphs["several"])}
    entries["mark"] = _key(plot, "a graph's last gradient", drawn.drawn["marks"].glyph)
    labels = ColumnDataSource(columns(_LABELS, [], _TEXTS))
    texts = []
    for quiet in (0, 1):
        text = Text(
            x="x",
            y="y",
            text="text",
            text_baseline="middle",
            text_font_size="11px",
            x_offset=5,
        )
        text.text_font = {"value": FONT}
        renderer = plot.add_glyph(labels, text, name=f"labels {quiet}")
        renderer.view = CDSView(filter=GroupFilter(column_name="quiet", group=quiet))
        texts.append(text)

    def themed(theme: Theme) -> Pairs:
        quiet: Any = lane_canvas.quiet_colour(theme)
        boxes = [drawn.drawn[name].glyph for name in ("bucket", "reduced", "node", "key node")]
        return [
            *drawn.themed(theme),
            *((glyph, {"fill_color": quiet, "line_color": quiet}) for glyph in boxes),
            (glyphs["one"], {"line_color": theme.quiet_text}),
            (texts[0], {"text_color": theme.text}),
            (texts[1], {"text_color": theme.quiet_text}),
        ]

    sources = {**drawn.sources, "lines": lines, "labels": labels}
    return LiveFigure(plot, sources, themed, {**drawn.rare, **entries}, _shown)


def _key(plot: figure, label: str, glyph: Segment) -> LegendItem:
    """An entry of the legend with this line, shown where there are such lines."""
    nowhere = ColumnDataSource(dict.fromkeys(("x0", "x1", "y0", "y1", "x", "top", "bottom"), [nan]))
    entry = LegendItem(label=label, renderers=[plot.add_glyph(nowhere, glyph)], visible=False)
    plot.legend[0].items = [*plot.legend[0].items, entry]
    return entry


def _shown(sources: Mapping[str, Columns]) -> set[str]:
    marks = {"mark"} if len(sources["marks"]["x"]) else set()
    return {*sources["bars"]["kind"], *sources["lines"]["kind"], *marks}


def picture(moment: Moment) -> Picture:
    """The moment's step, of the lowest rank."""
    step = moment.step
    if step is None:
        return _nothing(moment, moment.hint)
    if step < 0:
        return _nothing(moment, "no step was recorded yet: run one")
    chart = chart_of(moment.source, step)
    if chart is None:
        return _nothing(moment, f"step {step}: {why_none(moment.source, step)}")
    sheet = draw_columns(moment.source, chart, who(chart), moment.width_px)
    return Picture(
        step=step,
        title=f"step {step}: {finding(chart)}",
        sources=_sources(sheet.bars, sheet.lines, sheet.marks, sheet.labels),
        x=(sheet.x(0.0), sheet.x(1.0)),
        y=(sheet.y, 0.0),
        height_px=round(sheet.y),
        y_labels=[],
        facts=facts(moment.source, chart),
        readings=tuple(sheet.readings.items()),
    )


def _sources(
    bars: list[Row], lines: list[Row], marks: list[Row], labels: list[Row]
) -> dict[str, Columns]:
    texts = [{**row, "text": untypeset(row["text"])} for row in labels]
    return {
        "bars": columns(_BARS, bars, _TEXTS),
        "lines": columns(_LINES, lines, _TEXTS),
        "marks": live_canvas.marks(marks),
        "labels": columns(_LABELS, texts, _TEXTS),
    }


def _nothing(moment: Moment, title: str) -> Picture:
    return lane_canvas.empty(title, moment.step, _sources([], [], [], []))


VIEW = LiveView("compile", draw, picture, of_step=True, read=code_of)
