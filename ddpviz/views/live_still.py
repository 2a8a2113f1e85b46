"""A timeline as a still: one SVG without script, for where no browser part runs.

It has both themes: colours are attributes of the light one, which style rules replace where the
page that shows it is dark.
"""

from __future__ import annotations

import math
from base64 import b64encode
from html import escape
from typing import Any

from ddpviz.views.legend import OTHERS
from ddpviz.views.live import Picture, title_text
from ddpviz.views.palette import DARK, LIGHT, SPANS, Theme

_WIDTH_PX = 960
_LEFT_PX, _RIGHT_PX, _ABOVE_PX, _BELOW_PX = 150, 16, 62, 44
#: Ticks of the time axis.
_TICKS = 6
#: Between two entries of the legend, beside their text.
_KEY_PX = 26
#: Mean width of a letter at 11 px.
_LETTER_PX = 5.6


def html(picture: Picture) -> str:
    """The still as an ``<img>``, which also a page that trusts nobody shows. Names are escaped."""
    alt = escape(title_text(picture.title), quote=True)
    return f'<img alt="{alt}" style="max-width: 100%" src="{data_url(picture)}">'


def data_url(picture: Picture) -> str:
    """The still as the address of an image, which needs no network."""
    return f"data:image/svg+xml;base64,{b64encode(svg(picture).encode()).decode()}"


def svg(picture: Picture) -> str:
    """A picture of :data:`ddpviz.views.live_timeline.VIEW` on a card of its own colour."""
    height = picture.height_px + _ABOVE_PX + _BELOW_PX
    place, theme = _Place(picture), LIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH_PX} {height}" '
        f'width="{_WIDTH_PX}" height="{height}" font-family="Helvetica, Arial, sans-serif" '
        f'font-size="11" fill="{theme.text}">',
        f"<style>@media (prefers-color-scheme: dark) {{{_rules(DARK)}}}</style>",
        '<pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate(45)"><path class="hatch" d="M0 0V5" stroke="{theme.hatch}" '
        'opacity="0.4"/></pattern>',
        f'<rect class="card" width="{_WIDTH_PX}" height="{height}" fill="{theme.background}"/>',
        _text(12, 20, title_text(picture.title), size=14, weight="bold"),
        *_legend(picture, theme),
        *_grid(picture, place, theme),
    ]
    for row in _rows(picture.sources["exposed"]):
        box = f'class="exposed" stroke="{theme.exposed_line}" stroke-dasharray="4"'
        parts.append(_rect(place, row, theme.exposed_fill, box))
    for row in _rows(picture.sources["spans"]):
        colour = SPANS[row["kind"]][0]
        parts.append(_rect(place, row, colour, ""))
        if row["hatch"].strip():
            parts.append(_rect(place, row, "url(#hatch)", ""))
    for row in _rows(picture.sources["ticks"]):
        x = place.x(row["x"])
        parts.append(
            f'<path d="M{x:.1f} {place.y(row["top"]):.1f}V{place.y(row["bottom"]):.1f}" '
            f'class="tick" stroke="{theme.tick}"/>'
        )
    for row in _rows(picture.sources["marks"]):
        x, y = place.x(row["x"]), place.y(row["top"])
        parts.append(f'<path d="M{x:.1f} {y - 5:.1f}l4 5l-4 5l-4 -5z"/>')
    for row in _rows(picture.sources["flags"]):
        parts.append(_flag(place.x(row["x"]), place.y(row["top"]), theme))
    for row in _rows(picture.sources["labels"]):
        anchor = {"center": "middle", "right": "end"}.get(row["align"], "start")
        lower = 4 if row["baseline"] == "middle" else 0
        x, y = place.x(row["x"]), place.y(row["y"]) + lower
        parts.append(
            _text(
                x,
                y,
                row["text"],
                anchor=anchor,
                weight="bold",
                more=f' class="length" fill="{theme.exposed_text}"',
            )
        )
    for position, label in picture.y_labels or ():
        parts.append(_text(_LEFT_PX - 8, place.y(position) + 4, label, anchor="end"))
    below = height - 10
    parts.append(_text(_LEFT_PX, below, picture.x_label or ""))
    return "".join([*parts, "</svg>"])


def _rules(theme: Theme) -> str:
    """What takes the place of the attributes in a theme."""
    rules = {
        "svg": {"fill": theme.text},
        ".card": {"fill": theme.background},
        ".hatch": {"stroke": theme.hatch},
        ".exposed": {"fill": theme.exposed_fill, "stroke": theme.exposed_line},
        ".tick": {"stroke": theme.tick},
        ".length": {"fill": theme.exposed_text},
        ".flag": {"fill": theme.wrong},
        ".grid": {"stroke": theme.grid},
    }
    return "".join(
        f"{which}{{{';'.join(f'{name}:{value}' for name, value in values.items())}}}"
        for which, values in rules.items()
    )


class _Place:
    """From the axes of a picture to px of the drawing."""

    def __init__(self, picture: Picture) -> None:
        self._start, end = picture.x
        self._scale = (_WIDTH_PX - _LEFT_PX - _RIGHT_PX) / max(end - self._start, 1e-9)

    def x(self, ms: float) -> float:
        return _LEFT_PX + (ms - self._start) * self._scale

    def y(self, px: float) -> float:
        return _ABOVE_PX + px


def _rows(columns: dict[str, Any]) -> list[dict[str, Any]]:
    values = [list(column) for column in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


def _rect(place: _Place, row: dict[str, Any], fill: str, more: str) -> str:
    left, top = place.x(row["left"]), place.y(row["top"])
    width = max(place.x(row["right"]) - left, 0.75)
    height = place.y(row["bottom"]) - top
    return (
        f'<rect x="{left:.2f}" y="{top:.1f}" width="{width:.2f}" height="{height:.1f}" '
        f'fill="{fill}" {more}/>'
    )


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: int = 11,
    anchor: str = "start",
    weight: str = "normal",
    more: str = "",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
        f'font-weight="{weight}"{more}>{escape(text)}</text>'
    )


def _legend(picture: Picture, theme: Theme) -> list[str]:
    """The kinds that this picture has."""
    kinds = set(picture.sources["spans"]["kind"])
    keys = [
        (f'fill="{colour}" stroke="{colour}"', label)
        for kind, (colour, label) in SPANS.items()
        if kind in kinds
    ]
    if len(picture.sources["exposed"]["left"]):
        box = f'class="exposed" fill="{theme.exposed_fill}" stroke="{theme.exposed_line}"'
        keys.append((box, OTHERS["exposed"]))
    parts, x = [], 12.0
    for look, label in keys:
        parts.append(f'<rect x="{x:.1f}" y="33" width="12" height="12" {look}/>')
        width_px = _LETTER_PX * len(label)
        # Whatever font the reader has: it may not run into the next key.
        fitted = f' textLength="{width_px:.0f}" lengthAdjust="spacingAndGlyphs"'
        parts.append(_text(x + 16, 43, label, more=fitted))
        x += _KEY_PX + width_px
    if len(picture.sources["flags"]["x"]):
        parts += [_flag(x + 6, 39, theme), _text(x + 16, 43, OTHERS["flags"])]
    return parts


def _flag(x: float, y: float, theme: Theme) -> str:
    return f'<path d="M{x - 6:.1f} {y - 5:.1f}h12l-6 10z" class="flag" fill="{theme.wrong}"/>'


def _grid(picture: Picture, place: _Place, theme: Theme) -> list[str]:
    if not picture.y_labels:
        return []
    parts = []
    bottom = _ABOVE_PX + picture.height_px
    for at in _ticks(*picture.x):
        x = place.x(at)
        line = f'class="grid" stroke="{theme.grid}"'
        parts.append(f'<path d="M{x:.1f} {_ABOVE_PX}V{bottom}" {line}/>')
        parts.append(_text(x, bottom + 14, f"{at:g}", anchor="middle"))
    return parts


def _ticks(start: float, end: float) -> list[float]:
    """Round numbers between start and end."""
    rough = max(end - start, 1e-9) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first = math.ceil(start / step)
    return [round(number * step, 9) for number in range(first, math.floor(end / step) + 1)]
