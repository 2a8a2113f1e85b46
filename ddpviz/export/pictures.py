"""Figures as PNG or SVG, as large as a slide or a paper has them, drawn by the browser there is."""

from __future__ import annotations

import dataclasses
import tempfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from bokeh.embed import file_html
from bokeh.models import Glyph, LayoutDOM, Legend, Model, PlainText, Plot
from bokeh.resources import Resources

from ddpviz.export.browser import opened
from ddpviz.export.single import single
from ddpviz.views.legend import wrap
from ddpviz.views.palette import DARK, Theme, theme_named

if TYPE_CHECKING:
    from ddpviz.recording import Recording


@dataclasses.dataclass(frozen=True)
class Size:
    """``width_px``, ``most_height_px`` (of the frame): CSS px, 96 to an inch. ``letters``: how much
    larger than on a page. ``scale``: pixels of a PNG for each CSS px.
    """

    width_px: int
    most_height_px: int
    letters: float
    scale: int


#: A slide is 13.3 inches wide; a paper's text 7, for which letters are of 8 points.
SIZES = {"slide": Size(1280, 560, 1.5, 2), "paper": Size(672, 760, 1.0, 4)}
FORMATS = (".png", ".svg")

_LETTER_SIZES = (
    "text_font_size",
    "label_text_font_size",
    "major_label_text_font_size",
    "axis_label_text_font_size",
)
#: Mean width of a bold letter, of its size.
_LETTER_WIDTH = 0.65
#: What stands beside the title.
_MARGIN_PX = 140
_STYLE = "<style>html, body {{ margin: 0; background: {} }}</style>"
_TEMPLATE = "{% block preamble %}{{ style }}{% endblock %}"
_DRAWN = "window.Bokeh?.documents[0]?.is_idle === true"
#: BokehJS strokes every text again, with nothing.
_SVG = """(() => {
  const plots = (view) => view.export != null && view.model.renderers != null ? [view]
    : [...(view.child_views ?? [])].flatMap(plots)
  const {canvas} = [...Bokeh.index.roots].flatMap(plots)[0].export("svg")
  for (const text of canvas.querySelectorAll("text[stroke-opacity='0']")) {
    text.remove()
  }
  return new XMLSerializer().serializeToString(canvas)
})()"""
_BOX = """(() => {
  const {x, y, width, height} = [...Bokeh.index.roots][0].el.getBoundingClientRect()
  return {x, y, width, height}
})()"""


def write_picture(
    recording: Recording,
    view: str,
    path: str | Path,
    *,
    step: int | None = None,
    size: str = "slide",
    theme: str = "light",
) -> Path:
    """A view of a step as a picture, whose path it returns: PNG or SVG, as the path ends.

    ``view``, ``step``: as for :func:`~ddpviz.export.single.single`. ``size``: "slide" or "paper",
    of :data:`SIZES`. ``theme``: "light" or "dark". Raises ValueError for what there is not,
    :class:`~ddpviz.export.browser.BrowserError` where no browser is there or it fails, OSError
    where the file cannot be written.
    """
    path, shown = Path(path), theme_named(theme)
    if size not in SIZES:
        raise ValueError(f"found the size {size!r}, expected one of {', '.join(SIZES)}")
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"found {path.name}, expected a name that ends in {' or '.join(FORMATS)}")
    of = SIZES[size]
    plot = _plot(
        single(recording, view, step, theme=theme, width_px=round(of.width_px / of.letters))
    )
    _fit(plot, of, shown)
    html = file_html(
        plot,
        resources=Resources(mode="inline"),
        title="ddpviz",
        template=_TEMPLATE,
        template_variables={"style": _STYLE.format(shown.background)},
    )
    with tempfile.TemporaryDirectory(prefix="ddpviz-picture-") as folder:
        page_path = Path(folder) / "figure.html"
        page_path.write_text(html, encoding="utf-8")
        as_svg = path.suffix.lower() == ".svg"
        scale = 1 if as_svg else of.scale  # BokehJS draws keys of a legend in device pixels
        height_px = (plot.frame_height or 0) + 400
        with opened(page_path, "", of.width_px, height_px, dark=shown is DARK, scale=scale) as page:
            page.wait_for(_DRAWN)
            if as_svg:
                path.write_text(page.value(_SVG), encoding="utf-8")
            else:
                path.write_bytes(page.png(page.value(_BOX)))
    return path


def is_empty(figure: LayoutDOM) -> bool:
    """Whether a view's figure has only a title, which says why."""
    return not _plot(figure).xaxis[0].visible


def title_of(figure: LayoutDOM) -> str:
    """Its title as text."""
    text = _plot(figure).title.text
    return str(text.text if isinstance(text, PlainText) else text)


def _plot(figure: LayoutDOM) -> Plot:
    return figure if isinstance(figure, Plot) else next(iter(figure.select({"type": Plot})))


def _fit(plot: Plot, size: Size, theme: Theme) -> None:
    """Its letters and its height for a size; its title in as many lines as it takes."""
    natural = plot.frame_height or 1
    scale = min(size.letters, size.most_height_px / natural)
    plot.frame_height = round(natural * scale)
    plot.toolbar_location = None
    plot.background_fill_color = plot.border_fill_color = theme.background
    parts = (*plot.above, *plot.below, *plot.left, *plot.right, plot.title)
    for part in (*parts, *(one.glyph for one in plot.renderers if hasattr(one, "glyph"))):
        _enlarge(part, size.letters)
    for legend in plot.legend:
        wrap(plot, legend)
    text = title_of(plot)
    letter_px = float(str(plot.title.text_font_size).removesuffix("px")) * _LETTER_WIDTH
    lines = textwrap.wrap(text, round((size.width_px - _MARGIN_PX) / letter_px))
    told = "\n".join(lines)
    plot.title.text = PlainText(told) if isinstance(plot.title.text, PlainText) else told


def _enlarge(model: Model, factor: float) -> None:
    for name in _LETTER_SIZES:
        given = getattr(model, name, None)
        value = getattr(given, "value", given)
        if isinstance(value, str) and value.endswith("px"):
            text = f"{float(value[:-2]) * factor:.1f}px"
            setattr(model, name, {"value": text} if isinstance(model, Glyph) else text)
    if isinstance(model, Legend):
        model.glyph_width = round(model.glyph_width * factor)
        model.glyph_height = round(model.glyph_height * factor)
