"""Tables as text: what is shown of long runs and of numbers that are not known."""

from __future__ import annotations

import math

import pandas as pd

from ddpviz.cli import text
from tests.cli.command import table_below

COLUMNS = [
    "step_ms",
    "forward_ms",
    "backward_ms",
    "optimizer_ms",
    "hidden_communication_ms",
    "exposed_communication_ms",
    "buffer_broadcasts",
    "buffer_bytes",
    "buckets",
    "plan_version",
]


def steps_frame(steps: int, ranks: int = 2) -> pd.DataFrame:
    """Rank r of step s takes s + r ms; all else is 1."""
    return pd.DataFrame(
        [
            {"step": step, "rank": rank, **dict.fromkeys(COLUMNS, 1.0), "step_ms": step + rank}
            for step in range(steps)
            for rank in range(ranks)
        ]
    )


def test_times_are_means_over_ranks() -> None:
    rows = table_below(text.steps(steps_frame(3)) + "\n", "Steps")
    assert [row[1] for row in rows] == ["0.50", "1.50", "2.50", "2.50"]


def test_median_leaves_the_first_two_steps_out() -> None:
    rows = table_below(text.steps(steps_frame(7)) + "\n", "Steps")
    assert rows[-1][:2] == ["median", "4.50"]


def test_a_long_run_shows_both_ends() -> None:
    rows = table_below(text.steps(steps_frame(100)) + "\n", "Steps")
    shown = [row[0] for row in rows]
    assert shown == [*map(str, range(12)), "…", *map(str, range(88, 100)), "median"]


def test_what_is_not_known_is_a_dash() -> None:
    frame = steps_frame(1)
    frame["hidden_communication_ms"] = math.nan
    frame["buckets"] = math.nan
    (row,) = table_below(text.steps(frame) + "\n", "Steps")
    assert row[5] == "-"
    assert row[-2] == "-"


def test_columns_line_up() -> None:
    lines = text.table(["a", "name"], [["1", "x"], ["100", "long name"]], left=[1]).split("\n")
    assert lines == ["  a  name", "---  ---------", "  1  x", "100  long name"]
