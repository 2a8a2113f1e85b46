"""Tables as text: what is shown of long runs and of numbers that are not known."""

from __future__ import annotations

import math

import pandas as pd

from ddpviz.cli import text
from tests.cli.command import table_below

COLUMNS = [
    "period_ms",
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
                "burst": "",
            }
            for step in range(steps)
            for rank in range(ranks)
        ]
    )


STEP, HIDDEN, BUCKETS = 2, 6, 8


def test_steps_whose_gradients_came_at_once_are_told_with_the_reason() -> None:
    frame = steps_frame(4)
    assert "at once" not in text.steps(frame)
    frame.loc[frame["step"] > 1, "burst"] = "one backward"
    assert "in 2 steps all gradients came at once: one backward" in text.steps(frame)


def test_times_are_means_over_ranks() -> None:
    rows = table_below(text.steps(steps_frame(3)), "Steps")
    assert [row[STEP] for row in rows] == ["0.5", "1.5", "2.5", "2.5"]


def test_where_ranks_differ_the_lowest_and_the_highest_are_shown() -> None:
    frame = steps_frame(4)
    frame.loc[frame["rank"] == 1, "step_ms"] += 50
    rows = table_below(text.steps(frame), "Steps")
    assert [row[STEP] for row in rows] == [
        "0.0–51.0",
        "1.0–52.0",
        "2.0–53.0",
        "3.0–54.0",
        "2.5–53.5",
    ]
    frame["step_ms"] = 100.0 + frame["rank"] * 5  # 5 ms, but of 105
    assert table_below(text.steps(frame), "Steps")[0][STEP] == "102.5"


def test_which_rank_is_slow_stands_below() -> None:
    """Rank 1 is late: it is quick within its steps, in which the other waits for it."""
    frame = steps_frame(5)
    frame["period_ms"] = 100.0
    frame["step_ms"] = 95.0 - 50 * frame["rank"]
    rows = table_below(text.steps(frame), "Ranks")
    assert [row[:4] for row in rows] == [
        ["0", "5.0", "100.0", "95.0"],
        ["1", "55.0", "100.0", "45.0"],
    ]
    assert "Ranks" not in text.steps(steps_frame(5, ranks=1))


def test_of_many_ranks_the_quickest_and_the_slowest_are_listed() -> None:
    frame = steps_frame(3, ranks=40)
    frame["period_ms"] = 100.0
    listed = [int(row[0]) for row in table_below(text.steps(frame), "Ranks")]
    assert sorted(listed) == [*range(8), *range(32, 40)]


def test_median_leaves_the_first_two_steps_out() -> None:
    rows = table_below(text.steps(steps_frame(7)), "Steps")
    assert rows[-1][0] == "median" and rows[-1][STEP] == "4.5"


def test_a_few_steps_from_the_middle_of_a_job_all_count() -> None:
    """As of a trace: only its job's first steps allocate and rebuild."""
    frame = steps_frame(7)
    for least, median, why in ((4, "5.5", "of all of them"), (2, "5.5", "which warm up")):
        shown = text.steps(frame[frame["step"] >= least])
        assert table_below(shown, "Steps")[-1][STEP] == median
        assert why in shown
    few = text.steps(frame[frame["step"] >= 4])
    assert "rebuild the buckets" not in few


def test_a_long_run_shows_both_ends() -> None:
    rows = table_below(text.steps(steps_frame(100)), "Steps")
    shown = [row[0] for row in rows]
    assert shown == [*map(str, range(12)), "…", *map(str, range(88, 100)), "median"]


def test_what_is_not_known_is_a_dash() -> None:
    frame = steps_frame(1)
    frame["hidden_communication_ms"] = math.nan
    frame["buckets"] = math.nan
    (row,) = table_below(text.steps(frame), "Steps")
    assert row[HIDDEN] == "-"
    assert row[BUCKETS] == "-"


def test_a_mean_needs_the_number_of_every_rank() -> None:
    """Neither a rank that did not finish the step nor one that has no such step is left out."""
    frame = steps_frame(4)
    frame.loc[(frame["step"] == 1) & (frame["rank"] == 1), "step_ms"] = math.nan
    frame = frame[(frame["step"] != 3) | (frame["rank"] != 1)]
    rows = table_below(text.steps(frame), "Steps")
    assert [row[STEP] for row in rows] == ["0.5", "-", "2.5", "-", "2.5"]
    assert [row[STEP + 1] for row in rows] == ["1.0", "1.0", "1.0", "-", "1.0"]


def test_what_the_communication_columns_mean_stands_below() -> None:
    printed = text.steps(steps_frame(3))
    assert "hidden    a collective of the backward was in flight" in printed
    assert "exposed   a rank waits for collectives: after its last gradient" in printed
    assert "step      from the first forward with gradients to the end" in printed
    assert "period    from the end of the step before" in printed
    assert "collectives of your own and of Join are not counted" in printed
    assert max(map(len, printed.split("\n"))) <= 120
    assert "CUDA" not in printed


def test_on_cuda_it_says_why_there_is_no_number() -> None:
    frame = steps_frame(3)
    frame["enqueued"] = True
    frame[["hidden_communication_ms", "exposed_communication_ms"]] = math.nan
    printed = text.steps(frame)
    assert all(row[HIDDEN : HIDDEN + 2] == ["-", "-"] for row in table_below(printed, "Steps"))
    assert "some times on CUDA are the host's" in printed


def test_columns_line_up() -> None:
    lines = text.table(["a", "name"], [["1", "x"], ["100", "long name"]], left=[1]).split("\n")
    assert lines == ["  a  name", "---  ---------", "  1  x", "100  long name"]


def plan_frame(reason: str, limit: object, changed: str, module: int = 0) -> pd.DataFrame:
    limits = pd.array([limit], dtype="Int64")
    row = {"module": module, "version": 0, "reason": reason, "iteration": 0, "bucket": 0}
    names = {"bytes": 400, "parameters": 1, "parameter_names": [("w",)], "changed": changed}
    return pd.DataFrame({**row, **names, "limit_bytes": limits})


def test_a_plan_names_the_setting_that_its_module_was_made_for() -> None:
    first = plan_frame("construction", pd.NA, "")
    again = plan_frame("construction", pd.NA, "bucket_cap_mb 1 → 2", module=6)
    printed = text.plans(pd.concat([first, again], ignore_index=True))
    assert "Module 6 (bucket_cap_mb 1 → 2), bucket plan 0:" in printed


def test_why_the_first_plan_has_one_bucket_is_said_once_and_where_it_is_so() -> None:
    first = plan_frame("construction", pd.NA, "")
    again = plan_frame("construction", pd.NA, "", module=1)
    printed = text.plans(pd.concat([first, again], ignore_index=True))
    assert printed.count("(without find_unused_parameters DDP begins with one bucket") == 1
    # With find_unused_parameters the first plan follows the cap.
    assert "one bucket per dtype" not in text.plans(plan_frame("construction", 2**20, ""))
