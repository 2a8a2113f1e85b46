"""The replicas over the sampled steps: a cell is as equal as the table says."""

from __future__ import annotations

import numpy as np
import pytest

from ddpviz import analysis
from ddpviz.events import RECORD, Batch, Fingerprints, Kind, Module
from ddpviz.following.whole import still
from ddpviz.recording import Recording
from ddpviz.views.live_views import VIEWS
from tests.analysis import inside
from tests.views.pictures import in_lane, picture_of, rows_of
from tests.views.samples import sample_recording

LANES = {
    "parameters": "parameters",
    "gradients": "gradients",
    "buffers before": "buffers before",
    "buffers after": "buffers synced",
    "buffers": "buffers at end",
}


@pytest.mark.parametrize("case", ["drifting", "changed behind", "hook forgets"])
def test_a_cell_per_sampled_step_and_what(recorded: dict[str, Recording], case: str) -> None:
    recording = recorded[case]
    table = analysis.replicas(recording)
    picture = picture_of(recording, "replicas")
    drawn = rows_of(picture, "bars")
    assert len(drawn) == len(table)
    for what, rows in table.groupby("what"):
        cells = {int(c["step"]): c for c in in_lane(picture, drawn, LANES[str(what)])}
        assert sorted(cells) == sorted(rows["step"])
        for row in rows.to_dict("records"):
            unequal = "different" if row["promised"] else "drift"
            assert cells[row["step"]]["kind"] == ("equal" if row["equal"] else unequal)


def test_what_ddp_promises_and_broke_is_the_title(recorded: dict[str, Recording]) -> None:
    title = picture_of(recorded["hook forgets"], "replicas").title
    assert title.startswith("parameters differ between ranks since step 0: ")
    assert title.endswith(f"on rank {inside.CHANGED_RANK}")
    healthy = picture_of(recorded["drifting"], "replicas")
    assert healthy.title == "parameters and gradients are equal on 3 ranks in all 4 sampled steps"
    assert any("buffers after the step: 2 differ, on ranks 1, 2" in f for f in healthy.facts)


def test_one_changed_bit_is_found_with_its_name_and_step(recorded: dict[str, Recording]) -> None:
    recording = recorded["changed behind"]
    table = analysis.replicas(recording)
    broken = table[(table["what"] == "parameters") & (table["equal"] == False)]  # noqa: E712
    picture = picture_of(recording, "replicas")
    cells = rows_of(picture, "bars", "different")
    assert {int(cell["step"]) for cell in cells} == set(broken["step"])
    assert all("head.weight" in cell["time"] for cell in cells)
    assert "NaN or infinite" in picture.title


def test_without_fingerprints_it_says_what_to_call() -> None:
    picture = picture_of(sample_recording(), "replicas")
    assert picture.empty and "no fingerprints were taken" in picture.title
    assert "session.fingerprints(every=1)" in picture.facts[0]


def test_the_time_that_fingerprints_take_is_on_the_timeline(
    recorded: dict[str, Recording],
) -> None:
    recording = recorded["drifting"]
    taken = recording.records(Kind.FINGERPRINT, steps=recording.last_step)
    drawn = rows_of(picture_of(recording, "timeline"), "spans", "fingerprints")
    assert len(drawn) == len(taken) > 0
    first = drawn[0]
    assert first["head"].startswith("fingerprints of ") and "by ddpviz" in first["detail"]
    others = [
        row
        for row in rows_of(picture_of(recording, "timeline"), "spans")
        if row["top"] == first["top"] and row["kind"] in ("forward", "backward", "optimizer")
    ]
    for row in drawn:
        if row["top"] == first["top"]:  # nothing else is drawn where they were taken
            clear = (o["right"] <= row["left"] or o["left"] >= row["right"] for o in others)
            assert all(clear)


def _sampled_steps(count: int, apart: range) -> Recording:
    """Fingerprints of two ranks in so many steps; in some of them they differ."""
    recording = sample_recording(steps=count, buckets=1, parameters_per_bucket=1)
    for rank in (0, 1):
        module = recording.notes(Module, rank=rank)[0].id
        notes = tuple(
            Fingerprints(module, step, step, step, what, (digits,), (1.0,), (0,))
            for step in range(count)
            for what in ("parameters", "buffers before")
            for digits in [f"{rank if step in apart else 7:016x}"]
        )
        recording.append(Batch(rank, 1, np.zeros(0, RECORD), notes))
    return recording


def test_what_is_older_than_the_sampled_steps_that_are_drawn_is_not_told_as_known() -> None:
    recording = _sampled_steps(260, range(10, 20))
    lately = picture_of(recording, "replicas")  # as the live explorer, the last 200
    assert lately.title == "parameters are equal on 2 ranks in the last 200 sampled steps"
    whole = VIEWS["replicas"].picture(still(recording, None, "", 1000, VIEWS.values()))
    assert whole.title == (
        "parameters differed in 10 sampled steps from 10 to 19, and are equal now"
    )
    broken = _sampled_steps(260, range(10, 260))
    title = picture_of(broken, "replicas").title
    assert title.startswith("parameters differ between ranks since step 60 or before: ")
    told = " | ".join(picture_of(broken, "replicas").facts)
    assert "never equal again since step 60 or before" in told
    whole = VIEWS["replicas"].picture(still(broken, None, "", 1000, VIEWS.values()))
    assert whole.title.startswith("parameters differ between ranks since step 10: ")


def test_neighbours_that_share_a_bar_are_not_told_as_one() -> None:
    recording = _sampled_steps(260, range(0, 260, 2))
    picture = VIEWS["buffers"].picture(still(recording, None, "", 1000, VIEWS.values()))
    (row,) = in_lane(picture, rows_of(picture, "bars"), "equal before")
    assert "in some forwards, and different in others" in row["head"]
    assert row["time"] == "steps 0 to 259"
