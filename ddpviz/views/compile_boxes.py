"""The sheet that *compile* is drawn on: boxes, lines and texts in three columns. No Bokeh.

Across it is one axis of ms: from 0 on the time since backward began, below it the first columns.
"""

from __future__ import annotations

import dataclasses

from ddpviz.views.columns import Row
from ddpviz.views.lane_canvas import Lane
from ddpviz.views.text import count

#: Where columns begin and end, as parts of the width.
GRAPHS, BUCKETS, TIME = (0.0, 0.28), (0.38, 0.58), (0.66, 0.985)
#: Of a column; the others are counted.
MOST_BOXES = 16
PITCH_PX, LINE_PX = 24.0, 17.0
_FILL = 0.78
_LETTER_PX = 5.2
_AROUND_PX = 40


@dataclasses.dataclass
class Sheet:
    """Rows of the sources, ``readings`` as a picture has them. ``end_ms``: of the axis of time;
    ``y``: how far down it is used, in px."""

    rank: int
    end_ms: float
    width_px: int
    bars: list[Row] = dataclasses.field(default_factory=list)
    lines: list[Row] = dataclasses.field(default_factory=list)
    labels: list[Row] = dataclasses.field(default_factory=list)
    marks: list[Row] = dataclasses.field(default_factory=list)
    readings: dict[str, str] = dataclasses.field(default_factory=dict)
    y: float = 6.0

    def x(self, share: float) -> float:
        """Where a part of the width is."""
        return (share - TIME[0]) * self.end_ms / (TIME[1] - TIME[0])

    def lane(self, pitch_px: float = PITCH_PX) -> Lane:
        """The next one down."""
        lane = Lane("", self.y + pitch_px / 2, pitch_px * _FILL / 2)
        self.y += pitch_px
        return lane

    def spread(self, top: float, row: int, rows: int, height_px: float) -> Lane:
        """The ``row``-th of ``rows`` lanes over a height."""
        return Lane("", top + height_px * (row + 0.5) / rows, PITCH_PX * _FILL / 2)

    def bar(self, lane: Lane, kind: str, left: float, right: float, **told: object) -> None:
        """A bar of the source. ``told``: head, time, detail, bucket, reading."""
        edges = {"left": left, "right": right, "top": lane.top, "bottom": lane.bottom}
        default = {"bucket": -1, "rank": self.rank, "time": "", "detail": "", "reading": ""}
        self.bars.append({"kind": kind, **edges, **default, **told})

    def box(
        self,
        column: tuple[float, float],
        lane: Lane,
        kind: str,
        text: str,
        *shorter: str,
        **told: object,
    ) -> None:
        """A bar as wide as its column, with a text on it, see :meth:`text`."""
        self.bar(lane, kind, self.x(column[0]), self.x(column[1]), head=text, **told)
        self.text(column, lane.middle, text, *shorter, quiet=False)

    def text(
        self, column: tuple[float, float], middle: float, *texts: str, quiet: bool = True
    ) -> None:
        """At the begin of a column, the first text that its width has room for, else the last,
        cut."""
        px = (column[1] - column[0]) * max(self.width_px - _AROUND_PX, 200) - 10
        letters = max(int(px / _LETTER_PX), 4)
        cut = texts[-1][: letters - 1] + "…"
        short = next((text for text in texts if len(text) <= letters), cut)
        row = {"x": self.x(column[0]), "y": middle, "text": short, "quiet": int(quiet)}
        self.labels.append(row)

    def paragraph(self, text: str) -> None:
        """Over all columns, in as many lines as it takes."""
        letters = max(int((self.width_px - _AROUND_PX) / _LETTER_PX), 30)
        for line in _wrapped(text, letters):
            y = self.y + LINE_PX / 2
            self.labels.append({"x": self.x(0.0), "y": y, "text": line, "quiet": 0})
            self.y += LINE_PX

    def line(
        self, left: Lane, right: Lane, head: str, detail: str = "", *, several: bool = False
    ) -> None:
        """From a graph to a bucket."""
        time = "the bucket waits for more than one graph" if several else ""
        kind = "several" if several else "one"
        self._line(self.x(GRAPHS[1]), left, self.x(BUCKETS[0]), right, kind, head, time, detail)

    def to_time(self, lane: Lane, begin_ms: float, head: str) -> None:
        """From a bucket to where its collective is on the axis."""
        self._line(self.x(BUCKETS[1]), lane, begin_ms, lane, "one", head, "", "")

    def more(self, column: tuple[float, float], number: int, noun: str) -> None:
        """How many boxes of a column are not drawn, below it; without a new line."""
        if number > MOST_BOXES:
            text = f"and {count(number - MOST_BOXES, f'more {noun}')}"
            self.text(column, self.y + LINE_PX / 2, text)

    def _line(self, x0: float, left: Lane, x1: float, right: Lane, kind: str, *told: str) -> None:
        ends = {"x0": x0, "x1": x1, "y0": left.middle, "y1": right.middle, "kind": kind}
        self.lines.append({**ends, **dict(zip(("head", "time", "detail"), told, strict=True))})


def _wrapped(text: str, letters: int) -> list[str]:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > letters:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
