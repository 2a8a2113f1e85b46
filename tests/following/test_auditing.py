"""The audit beside a growing recording: bounded, kept, and never in anybody's way."""

from __future__ import annotations

import pytest

from ddpviz.analysis.audit import audit
from ddpviz.events import Batch, Cause
from ddpviz.following import auditing
from ddpviz.following.auditing import Auditor, Recent
from ddpviz.recording import Recording
from tests.audit import faults, healthy
from tests.audit.recorded import recordings
from tests.waiting import until


@pytest.fixture(scope="module")
def recorded() -> dict[str, Recording]:
    runs = {"no_sync_step": faults.no_sync_step, "unused_search": faults.unused_search}
    runs["local_sgd"] = faults.local_sgd
    return recordings(runs | {"drifting": healthy.drifting_buffers})


def test_the_newest_steps_are_audited_as_the_whole_is(recorded: dict[str, Recording]) -> None:
    for recording in recorded.values():
        found = Auditor(recording).look()
        assert [one.kind for one in found] == [one.kind for one in audit(recording)]


def test_what_was_wrong_stays_and_what_is_slow_goes(
    recorded: dict[str, Recording], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong, slow = Auditor(recorded["no_sync_step"]), Auditor(recorded["unused_search"])
    (before,) = wrong.look()
    assert [one.kind for one in slow.look()] == ["unused-search"]
    monkeypatch.setattr(auditing, "_STEPS", 1)
    assert Recent(recorded["no_sync_step"]).records(steps=1).size == 0
    assert wrong.look() == (before,) and before.since_step == 1
    assert slow.look() == ()


def test_what_comes_later_can_say_that_it_was_meant(recorded: dict[str, Recording]) -> None:
    """Until parameters are averaged first, steps in no_sync look like a mistake."""
    whole = recorded["local_sgd"]
    growing = Recording()
    auditor = Auditor(growing)
    rest = {}
    for rank in whole.ranks:
        records = whole.records(ranks=rank)
        own = records["begin_ns"][records["cause"] == Cause.USER].min()
        notes = tuple(n for kind in whole._intake.notes for n in whole.notes(kind, rank=rank))
        growing.append(Batch(rank, 0, records[records["end_ns"] < own], notes))
        rest[rank] = records[records["end_ns"] >= own]
    (before,) = auditor.look()
    for rank, records in rest.items():
        growing.append(Batch(rank, 1, records, ()))
    (after,) = auditor.look()
    assert (before.kind, before.severity.text) == ("no-sync-step", "wrong numbers")
    assert (after.kind, after.severity.text) == ("no-sync-step", "note")


def test_asking_never_waits_for_an_audit(recorded: dict[str, Recording]) -> None:
    whole = recorded["no_sync_step"]
    growing = Recording()
    auditor = Auditor(growing)
    assert auditor.findings(0) == ()
    until(lambda: not auditor._running)
    for rank in whole.ranks:
        notes = tuple(n for kind in whole._intake.notes for n in whole.notes(kind, rank=rank))
        growing.append(Batch(rank, 0, whole.records(ranks=rank), notes))
    auditor._due = 0.0
    auditor.findings(1)
    until(lambda: len(auditor.findings(1)) == 1)
    assert auditor.findings(1)[0].kind == "no-sync-step"
