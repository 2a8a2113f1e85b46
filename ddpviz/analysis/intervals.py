"""Lengths of unions of time spans, per group."""

from __future__ import annotations

import numpy as np


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
    # The latest end so far in the group: ends by their place among all, a group above the other.
    in_order = np.argsort(end_ns, kind="stable")
    place = np.empty(len(end_ns), np.int64)
    place[in_order] = np.arange(len(end_ns))
    base = groups.astype(np.int64) * len(end_ns)
    reached = end_ns[in_order][np.maximum.accumulate(base + place) - base]
    before = np.empty_like(reached)
    before[0], before[1:] = 0, reached[:-1]
    before[np.flatnonzero(np.diff(groups)) + 1] = 0
    covered = np.maximum(0, end_ns - np.maximum(begin_ns, before))
    return np.bincount(groups, weights=covered, minlength=count)
