"""The legend of a step's figure: entries for what this step draws, in as many lines as it needs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from bokeh.models import (
    ColumnDataSource,
    CustomJS,
    Glyph,
    GlyphRenderer,
    InlineStyleSheet,
    Legend,
    LegendItem,
    Quad,
    Scatter,
)
from bokeh.plotting import figure

from ddpviz.views.columns import Columns
from ddpviz.views.palette import SPANS
from ddpviz.views.rows import Rows

#: Entries that are no span: what stands in the source of that name, and hatched spans.
OTHERS = {
    "ticks": "gradient ready",
    "exposed": "exposed communication",
    "marks": "other collective or rebuild",
    "flags": "what the audit found",
    "derived": "hatched: derived",
}
#: Points down at what it flags.
FLAG: dict[str, Any] = {"marker": "inverted_triangle", "size": 12}
#: BokehJS lays a legend out in a grid; as wide as the frame, it may wrap instead.
_STYLE = """
.bk-grid {
  display: flex; flex-wrap: wrap; gap: 2px 10px !important; height: auto; width: auto;
  max-width: var(--ddpviz-legend-width, 900px);
}
"""
#: What each source has decides about its entries: also where a browser puts another step in.
_SHOW = """
const has = {
  ticks: sources.ticks.get_length() > 0,
  exposed: sources.exposed.get_length() > 0,
  marks: sources.marks.get_length() > 0,
  flags: sources.flags.get_length() > 0,
  derived: Array.from(sources.spans.data.hatch ?? []).includes("/"),
}
for (const kind of sources.spans.data.kind ?? []) {
  has[kind] = true
}
for (const [name, item] of Object.entries(items)) {
  item.visible = has[name] ?? false
}
"""
_WIDEN = 'legend.styles = {"--ddpviz-legend-width": `${Math.max(cb_obj.inner_width, 200)}px`}'


def entries() -> dict[str, str]:
    """Name and text of every entry, in order; a span's name is its kind."""
    found = {kind: label for kind, (_, label) in SPANS.items()}
    before = list(found)
    at = before.index("filling") + 1  # its ticks follow it
    names = [*before[:at], "ticks", *before[at:], "exposed", "marks", "flags", "derived"]
    return {name: found.get(name) or OTHERS[name] for name in names}


def drawn_in(rows: Rows) -> set[str]:
    """Names of the entries that a step has something for."""
    found = {"derived"} if rows.spans["derived"].any() else set()
    return found | _named(rows.tables)


def drawn_of(sources: Mapping[str, Columns]) -> set[str]:
    """The same of the figure's sources."""
    found = {"derived"} if "/" in sources["spans"]["hatch"] else set()
    return found | _named(sources)


def _named(tables: Mapping[str, Columns]) -> set[str]:
    others = {name for name in ("ticks", "exposed", "marks", "flags") if len(tables[name]["head"])}
    return others | set(tables["spans"]["kind"])


def add_legend(
    plot: figure, rows: Rows, sources: dict[str, ColumnDataSource], hatch: dict[str, Any]
) -> dict[str, GlyphRenderer]:
    """Puts it above the plot; its renderers, named "key …".

    BokehJS draws a swatch from the first row of its renderer, which a step need not have: each
    entry has a renderer of its own with one row that is nowhere.
    """
    nowhere = ColumnDataSource({"x": [math.nan]})
    edges: dict[str, Any] = dict.fromkeys(("left", "right", "top", "bottom"), "x")
    glyphs: dict[str, Glyph] = {
        kind: Quad(**edges, fill_color=colour, line_color=colour)
        for kind, (colour, _) in SPANS.items()
    }
    glyphs["exposed"] = Quad(**edges, line_dash="dashed")
    glyphs["derived"] = Quad(**edges, fill_color=None, **hatch)
    filling = SPANS["filling"][0]
    # BokehJS turns no marker in a legend: a hatch of upright lines is what ticks look like.
    glyphs["ticks"] = Quad(
        **edges,
        fill_color=filling,
        line_color=filling,
        hatch_pattern="vertical_line",
        hatch_scale=6,
        hatch_weight=1.25,
    )
    glyphs["marks"] = Scatter(x="x", y="x", marker="diamond", size=11)
    glyphs["flags"] = Scatter(x="x", y="x", **FLAG)
    texts, here = entries(), drawn_in(rows)
    renderers = {name: plot.add_glyph(nowhere, glyphs[name], name=f"key {name}") for name in texts}
    items = {
        name: LegendItem(label=text, renderers=[renderers[name]], visible=name in here)
        for name, text in texts.items()
    }
    legend = Legend(
        items=list(items.values()),
        orientation="horizontal",
        location="left",
        border_line_color=None,
        background_fill_color=None,
        label_text_font_size="11px",
        label_text_font="Helvetica, Arial, sans-serif",
        glyph_width=16,
        glyph_height=14,
        label_standoff=4,
        padding=0,
        margin=4,
    )
    plot.add_layout(legend, "above")
    wrap(plot, legend)
    show = CustomJS(args={"items": items, "sources": sources}, code=_SHOW)
    for source in sources.values():
        source.js_on_change("data", show)
    return {f"key {name}": renderer for name, renderer in renderers.items()}


def wrap(plot: figure, legend: Legend) -> None:
    """Have a legend above the plot take as many lines as it needs, within the frame's width."""
    legend.stylesheets = [InlineStyleSheet(css=_STYLE)]
    # The browser sets it at every layout, the first one included.
    plot.js_on_change("inner_width", CustomJS(args={"legend": legend}, code=_WIDEN))
