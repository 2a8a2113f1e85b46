"""A comparison ranks what the noise between rounds tells apart, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ddpviz.analysis.compare import _places, verdict


def rows(*medians: tuple[str, list[float]]) -> list[dict[str, Any]]:
    return [
        {
            "configuration": name,
            "medians": of_rounds,
            "step_ms": float(np.median(of_rounds)),
            "step_ms_low": min(of_rounds),
            "step_ms_high": max(of_rounds),
            "rounds": len(of_rounds),
        }
        for name, of_rounds in medians
    ]


@pytest.mark.parametrize(
    ("medians", "places"),
    [
        ([("a", [5, 5.1, 4.9]), ("b", [9, 8.8, 9.3])], [1, 2]),
        ([("a", [9, 8.8, 9.3]), ("b", [5, 5.1, 4.9])], [2, 1]),
        ([("a", [5, 4, 6]), ("b", [6, 5.5, 7])], [1, 1]),
        ([("a", [5, 5.1, 4.9]), ("b", [5.1, 4.95, 5.2]), ("c", [9, 8.8, 9.3])], [1, 1, 3]),
        # What b cannot be told apart from goes with it, though it is apart from a.
        ([("a", [5, 5.5, 6]), ("b", [7, 6.2, 7.6]), ("c", [9, 8.2, 9.9])], [1, 1, 1]),
        # Bands that do not overlap are no proof: two equal ones have them in one of three cases.
        ([("a", [4.61, 4.97]), ("b", [12.3, 26.6])], [1, 1]),
        ([("a", [50, 50.5]), ("b", [80, 79])], [1, 2]),
    ],
)
def test_places_are_apart_where_noise_does_not_explain_it(
    medians: list[Any], places: list[int]
) -> None:
    assert _places(rows(*medians)) == places


def test_equal_ones_are_told_apart_in_one_of_a_hundred_cases() -> None:
    """Of a thousand pairs with the same noise, for each number of rounds."""
    random = np.random.default_rng(0)
    for rounds in (2, 3, 5):
        noise = np.exp(random.normal(0, 0.2, (1000, 2, rounds)))
        apart = [_places(rows(("a", list(a)), ("b", list(b)))) != [1, 1] for a, b in noise]
        assert sum(apart) <= 20


def test_the_verdict_names_whom_it_does_not_rank() -> None:
    a, b, c = ("a", [9, 8.8, 9.3]), ("b", [5, 5.1, 4.9]), ("c", [5.1, 4.95, 5.2])
    assert verdict(rows(a, b)) == "from the fastest: b 5 ms (4.9 to 5.1), then a 9 ms (8.8 to 9.3)"
    tied = verdict(rows(a, b, c))
    assert tied.startswith("from the fastest: b 5 ms (4.9 to 5.1) and c 5.1 ms (4.95 to 5.2), then")
    assert tied.endswith("those joined by and are not told apart by these rounds")
    assert verdict(rows(b, c)).startswith("not told apart by these rounds: b 5 ms")


def test_one_round_has_no_noise_band_and_ranks_nothing() -> None:
    one = rows(("a", [5]), ("b", [9]))
    assert _places(one) == [-1, -1]
    assert verdict(one).startswith("nothing is ranked")
