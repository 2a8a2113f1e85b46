"""A quiet figure of labelled lanes, in px from the top, with texts on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from bokeh.models import ColumnDataSource, Text

from ddpviz.views import live_canvas
from ddpviz.views.columns import Columns, Row, columns
from ddpviz.views.live import LiveFigure, Pairs, Picture, lane_axis, untypeset
from ddpviz.views.live_canvas import Canvas, Kind
from ddpviz.views.look import FONT
from ddpviz.views.palette import Theme

#: Grey of what is as it should be: in a theme that of :data:`_QUIET`, apart from ink.
QUIET = "#BBBBBB"
_QUIET = {"light": "#C4C9CF", "dark": "#5E6772"}
#: Height of a figure that has nothing but its title.
EMPTY_HEIGHT_PX = 60
#: Ranks of which each has lanes of its own.
MOST_RANKS = 8

_FILL = 0.72
_LABELS = ("x", "y", "text")
#: The columns of bars that a step's own views have in place of ``step``: a tap selects the bucket.
_BARS = ("kind", "left", "right", "top", "bottom", "bucket", "rank", "head", "time", "detail")
_TEXTS = frozenset({"kind", "head", "time", "detail", "text"})
#: Room that the labels of lanes take from the figure.
_MARGIN_PX = 130
#: Mean width of a letter at 11 px.
_LETTER_PX = 6.0


@dataclasses.dataclass(frozen=True)
class Lane:
    """A strip: its label, middle and half height in px from the top."""

    label: str
    middle: float
    half: float

    @property
    def top(self) -> float:
        return self.middle - self.half

    @property
    def bottom(self) -> float:
        return self.middle + self.half


class Stack:
    """Lanes one below the other."""

    def __init__(self, pitch_px: float, margin_px: float = 6.0) -> None:
        self._pitch, self._margin, self._y = pitch_px, margin_px, margin_px
        self.lanes: list[Lane] = []

    def add(self, label: str) -> Lane:
        """One more lane."""
        lane = Lane(label, self._y + self._pitch / 2, self._pitch * _FILL / 2)
        self.lanes.append(lane)
        self._y += self._pitch
        return lane

    def gap(self, px: float = 8.0) -> None:
        """Room between two groups."""
        self._y += px

    @property
    def height_px(self) -> float:
        return self._y + self._margin

    @property
    def labels(self) -> list[tuple[float, str]]:
        """As :class:`Picture` takes them."""
        return [(lane.middle, lane.label) for lane in self.lanes]


@dataclasses.dataclass(frozen=True)
class LaneFigure:
    """The canvas, and the glyph of the texts."""

    canvas: Canvas
    text: Text
    ink: Collection[str]

    def live(self) -> LiveFigure:
        """With the sources "bars", "marks" and "labels"."""
        return LiveFigure(self.canvas.plot, self.canvas.sources, self.themed, self.canvas.rare)

    def themed(self, theme: Theme) -> Pairs:
        """What the theme sets; kinds of ink are drawn as text is."""
        pairs = [*self.canvas.themed(theme), (self.text, {"text_color": theme.text})]
        quiet = [name for name, kind in self.canvas.kinds.items() if kind.colour == QUIET]
        for names, colour in ((self.ink, theme.text), (quiet, _QUIET[theme.name])):
            for key in (key for name in names for key in (name, f"key {name}")):
                glyph = self.canvas.drawn[key].glyph
                pairs.append((glyph, {"fill_color": colour, "line_color": colour}))
        return pairs


def lane_figure(
    kinds: Mapping[str, Kind], *, x_label: str, ink: Collection[str] = (), marks: str = ""
) -> LaneFigure:
    """A figure without lanes. ``ink``: kinds that take the colour of text, to stand out; ``marks``:
    what marks are, for the legend."""
    drawn = live_canvas.canvas(
        kinds, x_label=x_label, y_label="", height_px=EMPTY_HEIGHT_PX, marks=marks
    )
    drawn.sources["bars"].data = bars([])
    drawn.sources["labels"] = ColumnDataSource(labels([]))
    plot = drawn.plot
    lane_axis(plot)
    plot.ygrid.visible = False
    text = Text(
        x="x", y="y", text="text", text_baseline="middle", text_font_size="11px", x_offset=5
    )
    text.text_font = {"value": FONT}
    plot.add_glyph(drawn.sources["labels"], text, name="labels")
    return LaneFigure(drawn, text, ink)


def quiet_colour(theme: Theme) -> str:
    """Of what is as it should be."""
    return _QUIET[theme.name]


def bars(rows: Sequence[Row]) -> Columns:
    """Bars of lanes; ``bucket`` and ``rank`` are -1 where a row is of none."""
    return columns(_BARS, [{"bucket": -1, "rank": -1, **row} for row in rows], _TEXTS)


def labels(rows: Sequence[Row]) -> Columns:
    """Texts at a place, never typeset."""
    return columns(_LABELS, [{**row, "text": untypeset(row["text"])} for row in rows], _TEXTS)


def bar(lane: Lane, kind: str, left: float, right: float, **told: object) -> Row:
    """A bar as high as its lane. ``told``: head, time, detail, bucket, rank."""
    edges = {"left": left, "right": right, "top": lane.top, "bottom": lane.bottom}
    return {"kind": kind, **edges, "time": "", "detail": "", **told}


def label(x: float, lane: Lane, text: str) -> Row:
    """A text beside what ends at ``x``."""
    return {"x": x, "y": lane.middle, "text": text}


def with_room(end: float, texts: Sequence[str], width_px: int) -> float:
    """Where an axis that holds data up to ``end`` must end, so that these texts fit behind it."""
    wanted_px = max((len(text) for text in texts), default=0) * _LETTER_PX + 12
    frame_px = max(width_px - _MARGIN_PX, 2 * wanted_px)
    return end * frame_px / (frame_px - wanted_px)


def chosen_ranks(keys: Mapping[int, float]) -> list[int]:
    """All ranks, or of many the slowest, the fastest and the median. ``keys``: how slow each is."""
    in_order = sorted(keys, key=lambda rank: (keys[rank], rank))
    if len(in_order) <= MOST_RANKS:
        return sorted(in_order)
    return sorted({in_order[0], in_order[len(in_order) // 2], in_order[-1]})


def empty(
    title: str, step: int | None, sources: Mapping[str, Columns], facts: tuple[str, ...] = ()
) -> Picture:
    """Nothing but a title, which says what to do or why there is nothing."""
    return Picture(
        step=-1 if step is None else step,
        title=title,
        sources=dict(sources),
        x=(0.0, 1.0),
        y=(float(EMPTY_HEIGHT_PX), 0.0),
        height_px=EMPTY_HEIGHT_PX,
        y_labels=[],
        empty=True,
        facts=facts,
    )
