"""The figure of finalize: its waits are the table's, and what is said of division and copy."""

from __future__ import annotations

import pytest

from ddpviz import analysis
from ddpviz.recording import Recording
from tests import compiled
from tests.analysis import inside
from tests.views.pictures import picture_of, rows_of


@pytest.mark.parametrize("case", ["explicit cap", "convnet", "wrong order"])
def test_waits_and_the_rest_are_all_of_finalize(recorded: dict[str, Recording], case: str) -> None:
    recording = recorded[case]
    picture = picture_of(recording, "finalize", 1)
    for (rank,), rows in analysis.finalize(recording, 1).groupby(["rank"]):
        waits = [r for r in rows_of(picture, "bars", "wait") if r["rank"] == rank]
        drawn = {row["bucket"]: row["right"] - row["left"] for row in waits}
        told = {row["bucket"]: row["wait_ms"] for row in rows.to_dict("records")}
        assert drawn == pytest.approx({b: ms for b, ms in told.items() if ms > 0})
        (rest,) = [
            row
            for kind in ("rest", "whole")
            for row in rows_of(picture, "bars", kind)
            if row["rank"] == rank
        ]
        assert rest["right"] == pytest.approx(rows["finalize_ms"].iloc[0])
        if not rows["rest_ms"].isna().any():
            assert rest["kind"] == "rest"
            assert rest["right"] - rest["left"] == pytest.approx(rows["rest_ms"].iloc[0])
    buckets = analysis.finalize(recording, 1)["bucket"].nunique()
    assert len(picture.y_labels or ()) == inside.RANKS * (buckets + 1)


@pytest.mark.parametrize(
    ("case", "division", "copied"),
    [
        ("explicit cap", "gradient by gradient, while each is copied", "copied out of the reduced"),
        ("views", "in the bucket, as each gradient gets ready", "nothing is copied"),
        ("hook averages", "in the comm hook, hook_averages", "copied out of the reduced"),
        ("joined", "under Join by all ranks, also those that have", "copied out of the reduced"),
        ("joined by the rest", "under Join by the ranks that have not", "copied out of"),
        ("sparse", "sparse gradient of table.weight where it lies", "copied out of the reduced"),
    ],
)
def test_where_division_happens_and_what_is_copied_is_said_in_each_mode(
    recorded: dict[str, Recording], case: str, division: str, copied: str
) -> None:
    facts = picture_of(recorded[case], "finalize").facts
    assert division in facts[0] and facts[0].startswith("division by the number of ranks: ")
    assert copied in facts[1]
    assert "cannot be seen from outside C++" in facts[2]


def test_of_python_reducer_it_is_said_who_divides() -> None:
    picture = picture_of(compiled.recording("python_reducer"), "finalize", 2)
    assert picture.title == "step 2: python_reducer reduced, no finalize ran"
    assert "python_reducer's hook of each parameter" in picture.facts[0]


def test_the_title_names_rank_time_and_bucket(recorded: dict[str, Recording]) -> None:
    recording = recorded["explicit cap"]
    table = analysis.finalize(recording, 1)
    slowest = table.loc[table["finalize_ms"].idxmax()]
    title = picture_of(recording, "finalize", 1).title
    assert title.startswith("step 1: finalize took ") and f"on rank {slowest['rank']}" in title


def test_a_step_that_reduced_nothing_says_so(recorded: dict[str, Recording]) -> None:
    recording = recorded["around no_sync"]
    picture = picture_of(recorded["convnet"], "finalize", -1)
    assert picture.empty and picture.title == "a construction has no backward: run a step"
    silent = [
        step for step in range(recording.last_step + 1) if analysis.finalize(recording, step).empty
    ]
    for step in silent:
        assert "no backward that reduced gradients" in picture_of(recording, "finalize", step).title
