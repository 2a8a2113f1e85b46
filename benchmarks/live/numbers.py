"""Quantiles, slopes and rows of the table."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Row:
    """A line of the table. ``met``: whether ``goal`` is; None where that cannot be told."""

    part: str
    what: str
    value: str
    goal: str = ""
    met: bool | None = None
    numbers: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        verdict = {True: "met", False: "MISSED", None: "not told"}[self.met] if self.goal else ""
        goal = f"{self.goal}: {verdict}" if self.goal else ""
        return f"{self.part:<10} {self.what:<39} {self.value:<62} {goal}".rstrip()


def quantiles(values: Sequence[float] | np.ndarray) -> dict[str, float]:
    """p50, p95, max and how many; NaN of nothing."""
    found = np.asarray(values, float)
    if not len(found):
        return {"p50": np.nan, "p95": np.nan, "max": np.nan, "n": 0}
    p50, p95 = np.quantile(found, [0.5, 0.95])
    return {"p50": float(p50), "p95": float(p95), "max": float(found.max()), "n": len(found)}


def told(found: dict[str, float], unit: str = "ms", digits: int = 0) -> str:
    """Quantiles in words."""
    p50, p95, most = (f"{found[name]:.{digits}f}" for name in ("p50", "p95", "max"))
    return f"p50 {p50} {unit}, p95 {p95}, max {most} (n {found['n']:,.0f})"


@dataclasses.dataclass(frozen=True)
class Slope:
    """A line through samples: ``per_minute`` and its standard error, and the samples' mean."""

    per_minute: float
    error: float
    mean: float

    def flat(self, minutes: float, share: float) -> bool | None:
        """Whether it rises by less than ``share`` of its mean in so many minutes.

        None where the samples scatter too much to tell.
        """
        allowed = share * self.mean / minutes
        if self.per_minute - 2 * self.error > allowed:
            return False
        return True if self.per_minute + 2 * self.error <= allowed else None


def slope(seconds: Sequence[float], values: Sequence[float]) -> Slope:
    """The least-squares line; of at least three samples."""
    x, y = np.asarray(seconds, float) / 60, np.asarray(values, float)
    x = x - x.mean()
    per_minute = float((x * y).sum() / (x * x).sum())
    rest = y - y.mean() - per_minute * x
    error = float(np.sqrt((rest * rest).sum() / (len(x) - 2) / (x * x).sum()))
    return Slope(per_minute, error, float(y.mean()))
