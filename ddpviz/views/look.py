"""What all figures share: fonts, axes without lines, tools, the tooltip and the theme's texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bokeh.models import DataRenderer, HoverTool, PanTool, ResetTool, SaveTool, Tool, WheelZoomTool
from bokeh.plotting import figure

from ddpviz.views.palette import Theme

FONT = "Helvetica, Arial, sans-serif"
#: Of what was derived; the pattern itself is the glyph's.
HATCH: dict[str, Any] = {"hatch_scale": 7, "hatch_weight": 1, "hatch_alpha": 0.4}

#: Every value is escaped by BokehJS (no ``{safe}``): names come from the user's model.
_TOOLTIP = (
    '<div style="margin: -5px; padding: 6px 8px; max-width: 420px; white-space: pre-line; '
    "overflow-wrap: anywhere; font-size: 12px; "
    "background: var(--ddpviz-background, var(--jp-layout-color1, #fff)); "
    'color: var(--ddpviz-text, var(--jp-ui-font-color1, #1f2328))">'
    '<b>@head</b>\n@time\n<span style="opacity: 0.75">@detail</span></div>'
)


def quiet_axes(plot: figure, label_size: str) -> None:
    """Labels and nothing else: no line, no ticks. ``label_size``: of the axes' own labels."""
    for axis in (*plot.xaxis, *plot.yaxis):
        axis.axis_line_color = None
        axis.major_tick_line_color = None
        axis.minor_tick_line_color = None
        axis.major_label_text_font_size = "11px"
        axis.major_label_text_font = FONT
        axis.axis_label_text_font_size = label_size
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_text_font = FONT


def add_tools(plot: figure, hovered: Sequence[DataRenderer], *more: Tool) -> None:
    """Hover on these, pan, zoom with Ctrl and the wheel, reset, save, and what more is given.

    Hovered sources have the columns "head", "time" and "detail".
    """
    hover = HoverTool(
        tooltips=_TOOLTIP, renderers=list(hovered), point_policy="follow_mouse", show_arrow=False
    )
    wheel = WheelZoomTool(dimensions="width", modifiers="ctrl")
    plot.add_tools(hover, *more, PanTool(dimensions="width"), wheel, ResetTool(), SaveTool())
    plot.toolbar.active_scroll = wheel
    plot.toolbar.logo = None
    plot.toolbar.autohide = True


def themed_texts(plot: figure, theme: Theme) -> list[tuple[Any, dict[str, Any]]]:
    """Models and what the theme sets on them: title, legend, labels of the axes."""
    pairs: list[tuple[Any, dict[str, Any]]] = [(plot.title, {"text_color": theme.text})]
    pairs += [(legend, {"label_text_color": theme.text}) for legend in plot.legend]
    for axis in (*plot.xaxis, *plot.yaxis):
        colours = {"major_label_text_color": theme.text, "axis_label_text_color": theme.text}
        pairs.append((axis, colours))
    return pairs
