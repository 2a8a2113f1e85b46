"""The bucket plan: parameters as registered, the first plan, the plan after the rebuild."""

from __future__ import annotations

from typing import Any

from bokeh.models import ColumnDataSource, Quad, Text

from ddpviz.analysis.plans import without_plan
from ddpviz.views import live_canvas
from ddpviz.views.columns import Columns, columns
from ddpviz.views.live import LiveFigure, LiveView, Moment, Pairs, Picture, lane_axis
from ddpviz.views.live_canvas import Kind
from ddpviz.views.look import FONT
from ddpviz.views.palette import Theme
from ddpviz.views.plan_facts import plan_basis, plan_facts
from ddpviz.views.plan_rows import FIRST, LAST, PlanRows, plan_rows

_HEIGHT_PX = 120.0
_KINDS = {
    "fill": Kind("filled, up to the limit", "#F0E442"),
    "overshoot": Kind("beyond: the tensor that closed it", "#F0E442", hatched=True, rare=True),
    # Never of a bar: what the blocks' colours mean.
    "first": Kind("parameters of bucket 0", FIRST),
    "last": Kind("… of the last one", LAST),
}
#: A figure narrower than this has short texts.
_NARROW_PX = 600
#: Mean width of a letter at 11 px, and what stands around a text.
_LETTER_PX, _AROUND_PX = 5.7, 14.0
#: The labels of lanes and of bars leave at least this share of the frame to the longest bar.
_LEAST_SHARE = 0.25
_BLOCKS = ("left", "right", "top", "bottom", "bucket", "colour", "edge", "head", "time", "detail")
_LABELS = ("x", "y", "text")
_LENGTHS = ("left", "right", "x")
_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_TEXTS = ("colour", "head", "time", "detail", "text")


def draw() -> LiveFigure:
    """The figure without a plan."""
    drawn = live_canvas.canvas(_KINDS, x_label="MiB", y_label="", height_px=round(_HEIGHT_PX))
    plot = drawn.plot
    drawn.sources["bars"].data = _bucket_bars([])
    lane_axis(plot)
    plot.ygrid.visible = False
    blocks = ColumnDataSource(columns(_BLOCKS, [], _TEXTS))
    labels = ColumnDataSource(columns(_LABELS, [], _TEXTS))
    edges: dict[str, Any] = {side: side for side in ("left", "right", "top", "bottom")}
    block = Quad(**edges, fill_color="colour", line_width="edge")
    renderer = plot.add_glyph(blocks, block, name="blocks")
    plot.hover[0].renderers = [*plot.hover[0].renderers, renderer]
    text = Text(
        x="x", y="y", text="text", text_baseline="middle", text_font_size="11px", x_offset=5
    )
    text.text_font = {"value": FONT}
    plot.add_glyph(labels, text, name="labels")

    def themed(theme: Theme) -> Pairs:
        return [
            *drawn.themed(theme),
            (block, {"line_color": theme.background}),
            (text, {"text_color": theme.text}),
        ]

    return LiveFigure(
        plot, {**drawn.sources, "blocks": blocks, "labels": labels}, themed, drawn.rare
    )


def picture(moment: Moment) -> Picture:
    """Lanes of buckets, on one scale of bytes."""
    rows = plan_rows(moment.source, brief=moment.width_px < _NARROW_PX)
    if rows is None:
        hint = moment.hint if moment.step is None else without_plan(moment.source)
        rows = PlanRows(hint, [], [], [], [], [], _HEIGHT_PX, 1.0)
    elif not rows.longest_bytes:
        rows = PlanRows(rows.title, [], [], [], [], [], _HEIGHT_PX, 1.0)
    unit, unit_bytes = _unit(rows.longest_bytes)
    return Picture(
        step=-1 if moment.step is None else moment.step,
        title=rows.title,
        sources={
            "bars": _bucket_bars(_in(unit_bytes, rows.bars)),
            "marks": live_canvas.marks(_in(unit_bytes, rows.marks)),
            "blocks": columns(_BLOCKS, _in(unit_bytes, rows.blocks), _TEXTS),
            "labels": columns(_LABELS, _in(unit_bytes, rows.labels), _TEXTS),
        },
        x=(0.0, _end_bytes(rows, moment.width_px) / unit_bytes),
        x_label=unit,
        y=(rows.height_px, 0.0),
        height_px=round(rows.height_px),
        y_labels=rows.lanes,
        empty=not rows.lanes,
        facts=plan_facts(moment.source, plan_basis(moment.source)),
    )


def _unit(longest_bytes: float) -> tuple[str, int]:
    """The axis' unit, and its bytes: so that the longest bar has a number before the point."""
    fits = [unit for unit in _UNITS.items() if longest_bytes >= unit[1] / 2]
    return fits[-1] if fits else ("B", 1)


def _in(unit_bytes: int, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in bytes, in another unit."""
    return [
        {name: of / unit_bytes if name in _LENGTHS else of for name, of in row.items()}
        for row in rows
    ]


def _end_bytes(rows: PlanRows, width_px: int) -> float:
    """Where the axis ends, so that each label fits behind its bar."""
    margin_px = max((len(label) for _, label in rows.lanes), default=0) * _LETTER_PX + _AROUND_PX
    frame_px = max(width_px - margin_px - _AROUND_PX, 1.0)
    end = max(rows.longest_bytes, 1.0)
    for label in rows.labels:
        share = 1 - (len(label["text"]) * _LETTER_PX + _AROUND_PX) / frame_px
        end = max(end, label["x"] / max(share, _LEAST_SHARE))
    return end


def _bucket_bars(rows: list[dict[str, Any]]) -> Columns:
    """Bars that stand for a bucket, not for a step."""
    found = live_canvas.bars(rows)
    found["bucket"] = found.pop("step")
    return found


VIEW = LiveView("plan", draw, picture, of_step=True, basis=plan_basis)
