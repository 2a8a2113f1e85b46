"""What views over the last steps share: a number per step from rows per rank, axes, changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from bokeh.models import BasicTicker, BasicTickFormatter
from bokeh.plotting import figure

from ddpviz.views.live import HISTORY_STEPS, Change
from ddpviz.views.text import count

#: A view shows at least this many steps, so that the first bars are not as wide as the figure.
_FEWEST_STEPS = 8
#: What the marks of :func:`change_marks` are.
CHANGES = "configured anew"
#: The axis holds this many times the median: a first step that allocates would flatten the rest.
_CUT_AT_MEDIANS = 4.0
#: Ranks that a hover names.
_MOST_RANKS = 8


@dataclasses.dataclass(frozen=True)
class Bins:
    """Which steps share a bar: of a long run each bar stands for several neighbours, so that none
    is left out. ``first``, ``last``: int64, the steps that each begins and ends with."""

    first: np.ndarray
    last: np.ndarray

    def of(self, steps: np.ndarray) -> np.ndarray:
        """The place of the bar that has each of these steps."""
        return np.searchsorted(self.first, steps, side="right") - 1

    def named(self, place: int) -> str:
        """ "step 7", "steps 100 to 104"."""
        first, last = int(self.first[place]), int(self.last[place])
        return f"step {first}" if first == last else f"steps {first} to {last}"


def bins_of(steps: np.ndarray) -> Bins:
    """Bars for these steps, given in order: as few steps each as there is room for."""
    each = max(1, -(-len(steps) // HISTORY_STEPS))
    ends = np.minimum(np.arange(each - 1, len(steps) + each - 1, each), len(steps) - 1)
    return Bins(steps[::each], steps[ends])


def binned(table: pd.DataFrame, names: Sequence[str]) -> tuple[pd.DataFrame, Bins]:
    """Rows per step and rank as rows per bar and rank, ``step`` the first of each: the columns
    ``names`` are means of its steps, of those whose number is known."""
    bins = bins_of(np.unique(table["step"].to_numpy(np.int64)))
    if (bins.first == bins.last).all():
        return table, bins
    first = bins.first[bins.of(table["step"].to_numpy(np.int64))]
    grouped = table[["rank", *names]].astype("float64").assign(step=first)
    means = grouped.groupby(["step", "rank"], as_index=False).mean()
    return means.astype({"rank": "int64"}), bins


def mean_of_ranks(table: pd.DataFrame, names: Sequence[str]) -> tuple[np.ndarray, ...]:
    """The steps in order, and of each column its mean over ranks by step; NaN where a rank's
    number is not known."""
    steps, of = np.unique(table["step"].to_numpy(np.int64), return_inverse=True)
    ranks = np.bincount(of, minlength=len(steps))
    sums = (np.bincount(of, table[name].to_numpy(np.float64), len(steps)) for name in names)
    return (steps, *(total / ranks for total in sums))


def step_axis(plot: figure) -> None:
    """Whole steps, never in powers of ten."""
    plot.xaxis[0].ticker = BasicTicker(min_interval=1)
    plot.xaxis[0].formatter = BasicTickFormatter(use_scientific=False)


def step_bounds(steps: Sequence[int] | np.ndarray) -> tuple[float, float]:
    """Bounds of the axis for these steps, given in order."""
    if not len(steps):
        return -0.5, _FEWEST_STEPS - 0.5
    first, last = int(steps[0]), int(steps[-1])
    return first - 0.5, max(last, first + _FEWEST_STEPS - 1) + 0.5


def last_of(steps: np.ndarray) -> float | None:
    """Where the numbers of the axis end; beyond it there is room for steps to come."""
    return int(steps[-1]) + 0.5 if len(steps) else None


def top_of(heights: np.ndarray) -> tuple[float, int]:
    """Upper bound of the vertical axis, and how many bars it cuts."""
    known = heights[np.isfinite(heights)]
    highest = float(known.max(initial=0.0))
    if highest <= 0:
        return 1.0, 0
    limit = _CUT_AT_MEDIANS * float(np.median(known))
    if 0 < limit < highest:
        return limit * 1.02, int((known > limit * 1.02).sum())
    return highest * 1.08, 0


def steps_label(bins: Bins, cut: int = 0) -> str:
    """The label of the axis of steps, which says what a bar stands for, and that bars leave the
    figure."""
    each = int((bins.last - bins.first).max(initial=0))
    told = ["each bar is the mean of neighbouring steps"] if each else []
    told += [f"{count(cut, 'higher bar')} cut"] if cut else []
    return f"step      ({'; '.join(told)})" if told else "step"


def by_step(table: pd.DataFrame, line: Callable[..., str], names: Sequence[str]) -> dict[int, str]:
    """Per step a line of text for each rank, of the first ranks where there are many.

    ``line`` takes the numbers of the columns ``names``.
    """
    found: dict[int, list[str]] = {}
    values = [table[name].tolist() for name in ("step", "rank", *names)]
    for step, rank, *rest in zip(*values, strict=True):
        found.setdefault(step, []).append(f"rank {rank}: {line(*rest)}")
    return {step: _few(lines) for step, lines in found.items()}


def _few(lines: list[str]) -> str:
    if len(lines) > _MOST_RANKS:
        lines = [*lines[:_MOST_RANKS], f"and {len(lines) - _MOST_RANKS} more ranks"]
    return "\n".join(lines)


def change_marks(changes: tuple[Change, ...], bounds: tuple[float, float], top: float) -> list[Any]:
    """A dotted line before each step for which something was configured."""
    return [
        {
            "x": change.step - 0.5,
            "top": top,
            "bottom": 0.0,
            "head": f"configured before step {change.step}",
            "time": change.text,
            "detail": "",
        }
        for change in changes
        if bounds[0] <= change.step - 0.5 <= bounds[1]
    ]
