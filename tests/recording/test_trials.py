"""What a comparison ran lies beside the ranks' files; a damaged file is told, never believed."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from ddpviz.recording import Recording, load
from ddpviz.recording.trials import FILE, Trial, read_trials, write_trials
from tests.recording.material import batches

TRIALS = (
    Trial("a <b>", 0, 3, 5, 9, 0.0, 1_000),
    Trial("b", 0, 0, 0, -1, math.nan, 0, "refused: it cannot be"),
)


def test_trials_come_back_as_they_were(tmp_path):
    write_trials(tmp_path, TRIALS)
    remarks: list[str] = []
    found = read_trials(tmp_path, remarks)
    assert found[0] == TRIALS[0] and math.isnan(found[1].difference) and remarks == []
    assert dataclasses.replace(found[1], difference=0.0) == dataclasses.replace(
        TRIALS[1], difference=0.0
    )


def test_a_recording_without_a_comparison_has_none(tmp_path):
    recording = Recording()
    for batch in batches(3):
        recording.append(batch)
    recording.save(tmp_path / "saved")
    assert not (tmp_path / "saved" / FILE).exists()
    again = load(tmp_path / "saved")
    assert again.trials == () and again.compared is None and again.remarks == ()


@pytest.mark.parametrize(
    "change",
    [
        {"name": 3},
        {"round": "0"},
        {"first": -7},
        {"last": 2**70},
        {"difference": "much"},
        {"memory_bytes": True},
        {"more": 1},
        {"refused": None},
    ],
)
def test_a_damaged_file_is_left_out_and_said(tmp_path, change):
    recording = Recording()
    for batch in batches(3):
        recording.append(batch)
    recording.save(tmp_path / "saved")
    write_trials(tmp_path / "saved", TRIALS)
    held = json.loads((tmp_path / "saved" / FILE).read_text())
    held["trials"][0].update(change)
    (tmp_path / "saved" / FILE).write_text(json.dumps(held))
    again = load(tmp_path / "saved")
    assert again.compared is None
    assert again.remarks == (
        f"{FILE} is damaged or of a later version: what was compared is left out",
    )


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 100_000, '{"format": 1}', "\x00", "null"])
def test_any_other_file_of_that_name_is_left_out_and_said(tmp_path, text):
    (tmp_path / FILE).write_text(text)
    remarks: list[str] = []
    assert read_trials(tmp_path, remarks) == () and len(remarks) == 1
