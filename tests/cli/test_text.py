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
            {
                "step": step,
                "rank": rank,
                **dict.fromkeys(COLUMNS, 1.0),
                "step_ms": step + rank,
                "enqueued": False,
            }
            for step in range(steps)
            for rank in range(ranks)
        ]
    )


def test_times_are_means_over_ranks() -> None:
    rows = table_below(text.steps(steps_frame(3)), "Steps")
    assert [row[1] for row in rows] == ["0.50", "1.50", "2.50", "2.50"]


def test_median_leaves_the_first_two_steps_out() -> None:
    rows = table_below(text.steps(steps_frame(7)), "Steps")
    assert rows[-1][:2] == ["median", "4.50"]


def test_a_long_run_shows_both_ends() -> None:
    rows = table_below(text.steps(steps_frame(100)), "Steps")
    shown = [row[0] for row in rows]
    assert shown == [*map(str, range(12)), "…", *map(str, range(88, 100)), "median"]


def test_what_is_not_known_is_a_dash() -> None:
    frame = steps_frame(1)
    frame["hidden_communication_ms"] = math.nan
    frame["buckets"] = math.nan
    (row,) = table_below(text.steps(frame), "Steps")
    assert row[5] == "-"
    assert row[-2] == "-"


def test_a_mean_needs_the_number_of_every_rank() -> None:
    """Neither a rank that did not finish the step nor one that has no such step is left out."""
    frame = steps_frame(4)
    frame.loc[(frame["step"] == 1) & (frame["rank"] == 1), "step_ms"] = math.nan
    frame = frame[(frame["step"] != 3) | (frame["rank"] != 1)]
    rows = table_below(text.steps(frame), "Steps")
    assert [row[1] for row in rows] == ["0.50", "-", "2.50", "-", "2.50"]
    assert [row[2] for row in rows] == ["1.00", "1.00", "1.00", "-", "1.00"]


def test_what_the_communication_columns_mean_stands_below() -> None:
    printed = text.steps(steps_frame(3))
    assert "hidden comm   a collective of the backward was in flight" in printed
    assert "exposed comm  after its last gradient a rank waits" in printed
    assert "CUDA" not in printed


def test_on_cuda_it_says_why_there_is_no_number() -> None:
    frame = steps_frame(3)
    frame["enqueued"] = True
    frame[["hidden_communication_ms", "exposed_communication_ms"]] = math.nan
    printed = text.steps(frame)
    assert all(row[5:7] == ["-", "-"] for row in table_below(printed, "Steps"))
    assert "on CUDA all times are the host's" in printed


def test_columns_line_up() -> None:
    lines = text.table(["a", "name"], [["1", "x"], ["100", "long name"]], left=[1]).split("\n")
    assert lines == ["  a  name", "---  ---------", "  1  x", "100  long name"]
