"""Lengths of unions of time spans, per group."""

from __future__ import annotations

import numpy as np
import pandas as pd


def union_ns(
    groups: np.ndarray, begin_ns: np.ndarray, end_ns: np.ndarray, count: int
) -> np.ndarray:
    """Time covered by at least one span, per group 0 … count-1 (float64 ns, exact below 104 days).

    ``groups``, ``begin_ns``, ``end_ns``: one row per span; an end before its begin covers nothing.
    """
    if not len(groups):
        return np.zeros(count)
    order = np.lexsort((begin_ns, groups))
    groups, begin_ns, end_ns = groups[order], begin_ns[order], end_ns[order]
    reached = pd.Series(end_ns).groupby(groups).cummax().to_numpy()
    before = np.empty_like(reached)
    before[0], before[1:] = 0, reached[:-1]
    before[np.flatnonzero(np.diff(groups)) + 1] = 0
    covered = np.maximum(0, end_ns - np.maximum(begin_ns, before))
    return np.bincount(groups, weights=covered, minlength=count)
