"""What was configured when: told of what somebody changed, and of nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np

from ddpviz.events import RECORD, Batch, Configuration, Kind
from ddpviz.following.changes import Changes
from ddpviz.recording import Recording


def recorded(*configured: tuple[int, int, dict[str, Any]]) -> Recording:
    """Configurations as (module, time, values), and a step after each."""
    records = np.zeros(len(configured), RECORD)
    records["kind"] = Kind.STEP
    records["step"] = range(len(configured))
    records["begin_ns"] = [time_ns + 1 for _, time_ns, _ in configured]
    records["end_ns"] = records["begin_ns"] + 1
    notes = tuple(Configuration(one[0], 0, one[1], one[2]) for one in configured)
    recording = Recording()
    recording.append(Batch(0, 0, records, notes))
    return recording


def test_two_modules_that_differ_are_no_change() -> None:
    recording = recorded(
        (0, 10, {"bucket_cap_mb": 1}),
        (1, 20, {"bucket_cap_mb": 25}),
        (0, 30, {"bucket_cap_mb": 1}),
        (1, 40, {"bucket_cap_mb": 25}),
    )
    assert Changes().read(recording) == ()


def test_a_change_of_one_of_them_is_told_against_its_own() -> None:
    recording = recorded(
        (0, 10, {"bucket_cap_mb": 1}),
        (1, 20, {"bucket_cap_mb": 25}),
        (0, 30, {"bucket_cap_mb": 2}),
    )
    (change,) = Changes().read(recording)
    assert (change.step, change.text) == (2, "bucket_cap_mb=2")


def test_a_module_made_in_place_of_another_is_told_against_it() -> None:
    recording = recorded((0, 10, {"bucket_cap_mb": 1}), (1, 20, {"bucket_cap_mb": 25}))
    (change,) = Changes().read(recording)
    assert (change.step, change.text) == (1, "bucket_cap_mb=25")
