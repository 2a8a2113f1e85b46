"""A comparison ranks what the noise between rounds tells apart, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from ddpviz.analysis.compare import _places, verdict


def rows(*bands: tuple[str, float, float, float], rounds: int = 3) -> list[dict[str, Any]]:
    names = ("configuration", "step_ms", "step_ms_low", "step_ms_high")
    return [dict(zip(names, band, strict=True)) | {"rounds": rounds} for band in bands]


@pytest.mark.parametrize(
    ("bands", "places"),
    [
        ([("a", 5, 4, 6), ("b", 9, 8, 10)], [1, 2]),
        ([("a", 9, 8, 10), ("b", 5, 4, 6)], [2, 1]),
        ([("a", 5, 4, 6), ("b", 6, 5.5, 7)], [1, 1]),
        ([("a", 5, 4, 6), ("b", 6, 5.5, 7), ("c", 9, 8, 10)], [1, 1, 3]),
        # What b cannot be told apart from goes with it, though it is apart from a.
        ([("a", 5, 4, 6), ("b", 6, 5.5, 9), ("c", 9, 8, 10)], [1, 1, 1]),
    ],
)
def test_places_are_apart_where_bands_are(bands: list[Any], places: list[int]) -> None:
    assert _places(rows(*bands)) == places


def test_the_verdict_names_whom_it_does_not_rank() -> None:
    apart = verdict(rows(("a", 9, 8, 10), ("b", 5, 4, 6)))
    assert apart == "from the fastest: b 5 ms (4 to 6), then a 9 ms (8 to 10)"
    tied = verdict(rows(("a", 6, 5.5, 7), ("b", 5, 4, 6), ("c", 9, 8, 10)))
    assert tied.startswith("from the fastest: b 5 ms (4 to 6) and a 6 ms (5.5 to 7), then c 9 ms")
    assert tied.endswith("those joined by and are not told apart, as their noise bands overlap")
    assert verdict(rows(("a", 6, 5, 7), ("b", 5, 4, 6))).startswith("not told apart")


def test_one_round_has_no_noise_band_and_ranks_nothing() -> None:
    one = rows(("a", 5, 5, 5), ("b", 9, 9, 9), rounds=1)
    assert _places(one) == [-1, -1]
    assert verdict(one).startswith("nothing is ranked")
