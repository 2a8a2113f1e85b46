"""What a live view is: a figure made once, and a picture of each moment that is put into it.

A picture is plain data, so the kernel sends it as numbers and texts and the browser that owns the
figure puts it in. Every figure comes with both themes: the browser picks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import pandas as pd
from bokeh.models import ColumnDataSource, FixedTicker, LegendItem
from bokeh.plotting import figure

from ddpviz.analysis.audit import Finding
from ddpviz.analysis.source import Source
from ddpviz.printable import straight
from ddpviz.views.columns import Columns
from ddpviz.views.palette import DARK, LIGHT, Theme
from ddpviz.views.text import brief

#: Steps that views over time show.
HISTORY_STEPS = 200

#: Models of a figure, and properties to set on each.
Pairs = list[tuple[Any, dict[str, Any]]]

#: What makes BokehJS typeset a text as mathematics, and the same with a zero-width space in it.
_TEX = {"$$": "$\u200b$", r"\[": "\\\u200b[", r"\(": "\\\u200b("}
#: Of one reading: what is longer says that it is cut.
LONGEST_READING = 70_000
#: Characters of a title that fit beside each other at 1366 px.
_LONGEST_TITLE = 140


@dataclasses.dataclass(frozen=True)
class Change:
    """``text``: what was configured before ``step``."""

    step: int
    text: str


@dataclasses.dataclass(frozen=True)
class History:
    """The last steps that every rank completed, at most :data:`HISTORY_STEPS`.

    ``steps``: rows of :func:`ddpviz.analysis.steps`; ``buffers``: of
    :func:`ddpviz.analysis.buffers`; ``sent``: collectives of buffers by step, rank, op, dtype, with
    their number and bytes; ``changes``: of the configuration.
    """

    steps: pd.DataFrame
    buffers: pd.DataFrame
    sent: pd.DataFrame
    changes: tuple[Change, ...] = ()


def no_steps(history: History) -> History:
    """The same tables without rows."""
    tables = (history.steps, history.buffers, history.sent)
    return History(*(table.iloc[:0] for table in tables))


@dataclasses.dataclass(frozen=True)
class Moment:
    """What views are drawn from.

    ``source``: the records of ``step``, and the notes that they need. ``step``: None where nothing
    was recorded yet; ``hint`` says then what to do. ``width_px``: of the figure in the browser.
    ``outside``: gives what was recorded outside of steps, as constructions. ``findings``: what the
    audit has found up to now. ``sampled_steps``: of how many steps with fingerprints, at most.
    """

    source: Source
    step: int | None
    history: History
    hint: str = "nothing recorded yet"
    width_px: int = 1100
    outside: Callable[[], Source] | None = None
    findings: tuple[Finding, ...] = ()
    sampled_steps: int = HISTORY_STEPS


@dataclasses.dataclass(frozen=True)
class Picture:
    """What a view shows at a moment, as data.

    ``sources``: every source of the figure; ``x``, ``y``: bounds of the axes; ``height_px``: of the
    frame; ``x_label``: None leaves the figure's; ``y_labels``: position and text of each lane, None
    for a numeric axis; ``y_label``: None leaves the figure's. ``empty``: there is nothing but the
    title, so no axis and no legend either. ``x_until``: where the numbers of the horizontal axis
    end, None for its end. ``facts``: sentences that stand below the figure. ``readings``: keys and
    labels of what can be read in full, see :class:`LiveView`. Overlong names in title and facts are
    cut (:func:`ddpviz.views.text.brief`).
    """

    step: int
    title: str
    sources: dict[str, Columns]
    x: tuple[float, float]
    y: tuple[float, float]
    height_px: int
    x_label: str | None = None
    y_label: str | None = None
    y_labels: Sequence[tuple[float, str]] | None = None
    empty: bool = False
    x_until: float | None = None
    facts: tuple[str, ...] = ()
    readings: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", brief(self.title))
        object.__setattr__(self, "facts", tuple(brief(fact) for fact in self.facts))


@dataclasses.dataclass(frozen=True)
class LiveFigure:
    """A figure, its sources by name, and what a theme sets on its models.

    ``rare``: entries of the legend that are shown only for pictures that have something of that
    name; ``names``: the kinds of its bars, and its other sources that have rows.
    """

    plot: figure
    sources: dict[str, ColumnDataSource]
    themed: Callable[[Theme], Pairs]
    rare: Mapping[str, LegendItem] = dataclasses.field(default_factory=dict)
    names: Callable[[Mapping[str, Columns]], set[str]] = lambda sources: {
        *sources["bars"]["kind"],
        *(name for name in sources if len(next(iter(sources[name].values()))) and name != "bars"),
    }

    @property
    def themes(self) -> dict[str, Pairs]:
        """The pairs of both themes by name."""
        return {theme.name: self.themed(theme) for theme in (LIGHT, DARK)}


@dataclasses.dataclass(frozen=True)
class LiveView:
    """``draw``: a figure without data; ``picture``: what it shows at a moment.

    ``of_step``: it shows the moment's step only, not the last steps up to now; ``over_steps``: it
    draws the moment's whole history. ``basis``: what it is drawn from, where that is less than the
    step: it need not be drawn again from the same.
    ``read``: the text of a picture's reading by its key, of at most :data:`LONGEST_READING`
    characters; too long to come with every picture. Rows of the source "bars" that have one name
    its key in their column "reading". Raises LookupError for an unknown key.
    """

    name: str
    draw: Callable[[], LiveFigure]
    picture: Callable[[Moment], Picture]
    of_step: bool = False
    over_steps: bool = False
    basis: Callable[[Source], Hashable] | None = None
    read: Callable[[Source, str], str] | None = None


def properties(drawn: LiveFigure, picture: Picture) -> Pairs:
    """What a picture sets on the figure's models, beside the data of its sources."""
    plot = drawn.plot
    pairs: Pairs = [
        (plot, {"frame_height": picture.height_px}),
        (plot.title, {"text": title_text(picture.title)}),
        (plot.x_range, _bounds(picture.x)),
        (plot.y_range, _bounds(picture.y)),
    ]
    parts = (*plot.xaxis, *plot.yaxis, plot.xgrid[0], *plot.legend)
    pairs += [(part, {"visible": not picture.empty}) for part in parts]
    if picture.x_until is not None:  # numbers that nothing was drawn for say nothing
        pairs += [(part, {"bounds": (picture.x[0], picture.x_until)}) for part in plot.xaxis]
        pairs.append((plot.xgrid[0], {"bounds": (picture.x[0], picture.x_until)}))
    kinds = drawn.names(picture.sources) if drawn.rare else set()
    pairs += [(entry, {"visible": kind in kinds}) for kind, entry in drawn.rare.items()]
    if picture.x_label is not None:
        pairs.append((plot.xaxis[0], {"axis_label": untypeset(picture.x_label)}))
    if picture.y_label is not None:
        pairs.append((plot.yaxis[0], {"axis_label": untypeset(picture.y_label)}))
    if picture.y_labels is not None:
        ticks = [round(float(position), 3) for position, _ in picture.y_labels]
        texts = [untypeset(text) for _, text in picture.y_labels]
        pairs.append((plot.yaxis[0].ticker, {"ticks": ticks}))
        overrides = dict(zip(ticks, texts, strict=True))
        pairs.append((plot.yaxis[0], {"major_label_overrides": overrides}))
    return pairs


def show(drawn: LiveFigure, picture: Picture, theme: Theme | None = None) -> None:
    """Put a picture, and the colours of a theme, into the figure here in Python."""
    for model, values in properties(drawn, picture):
        model.update(**values)
    for name, columns in picture.sources.items():
        drawn.sources[name].data = columns
    if theme is not None:
        for model, values in drawn.themed(theme):
            model.update(**values)


def title_text(title: str) -> str:
    """A title in one line, cut where it would leave the figure, and never typeset."""
    whole = " ".join(straight(title).split())
    cut = whole if len(whole) <= _LONGEST_TITLE else whole[: _LONGEST_TITLE - 1] + "…"
    return untypeset(cut)


def untypeset(text: str) -> str:
    """The text such that BokehJS draws it as it is: a name may look like TeX."""
    for mark, broken in _TEX.items():
        text = text.replace(mark, broken)
    return text


def lane_axis(plot: figure) -> None:
    """Make the vertical axis one of labelled lanes."""
    plot.yaxis[0].ticker = FixedTicker(ticks=[])


def _bounds(bounds: tuple[float, float]) -> dict[str, float]:
    start, end = float(bounds[0]), float(bounds[1])
    return {"start": start, "end": end, "reset_start": start, "reset_end": end}
