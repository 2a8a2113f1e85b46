"""Time covered by spans, against counting every tick."""

from __future__ import annotations

import numpy as np

from ddpviz.analysis.intervals import union_ns


def test_time_that_is_covered_twice_counts_once() -> None:
    groups = np.array([0, 0, 0, 2])
    begins, ends = np.array([0, 5, 30, 7]), np.array([10, 20, 25, 9])  # the third covers nothing
    assert union_ns(groups, begins, ends, 4).tolist() == [20, 0, 2, 0]
    assert union_ns(groups[:0], begins[:0], ends[:0], 2).tolist() == [0, 0]


def test_any_spans_cover_what_their_ticks_do() -> None:
    random = np.random.default_rng(0)
    for count in (1, 2, 7, 40, 300):
        groups = random.integers(0, 5, count)
        begins = random.integers(0, 500, count)
        ends = begins + random.integers(-20, 60, count)
        ticks: list[set[int]] = [set() for _ in range(6)]
        for group, begin, end in zip(groups.tolist(), begins.tolist(), ends.tolist(), strict=True):
            ticks[group].update(range(begin, end))
        epoch_ns = 1_700_000_000_000_000_000
        found = union_ns(groups, begins + epoch_ns, ends + epoch_ns, 6)
        assert found.tolist() == [len(covered) for covered in ticks]
