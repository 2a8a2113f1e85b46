"""The audit beside a growing recording: bounded, kept, and never in anybody's way."""

from __future__ import annotations

import dataclasses

import pytest

from ddpviz.analysis.audit import audit
from ddpviz.events import Batch, Cause, Fingerprints
from ddpviz.following import auditing
from ddpviz.following.auditing import Auditor, Recent
from ddpviz.recording import Recording
from tests.audit import faults, healthy
from tests.audit.recorded import recordings
from tests.waiting import until


@pytest.fixture(scope="module")
def recorded() -> dict[str, Recording]:
    runs = {
        "no_sync_step": faults.backwards.no_sync_step,
        "unused_search": faults.costs.unused_search,
    }
    runs["local_sgd"] = faults.replicas.local_sgd
    runs["parted_for_a_while"] = faults.replicas.parted_for_a_while
    return recordings(runs | {"drifting": healthy.of_buffers.drifting_buffers})


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


def grown(whole: Recording, until: int) -> Recording:
    """The same run as it was at the end of a step."""
    growing = Recording()
    for rank in whole.ranks:
        records = whole.records(ranks=rank)
        records = records[records["step"] <= until]
        notes = tuple(
            note
            for kind in whole._intake.notes
            for note in whole.notes(kind, rank=rank)
            if getattr(note, "step", -1) <= until
        )
        growing.append(Batch(rank, 0, records, notes))
    return growing


def test_replicas_that_are_equal_again_are_told_so(
    recorded: dict[str, Recording], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the audit of the whole run, and also where the newest steps have only the end of it."""
    whole = recorded["parted_for_a_while"]
    (parted,) = Auditor(grown(whole, 3)).look()
    assert (parted.kind, parted.severity.text) == ("replicas-parted", "wrong numbers")
    for newest in (200, 1):
        auditor = Auditor(grown(whole, 3))
        auditor.look()
        auditor.recording = whole
        monkeypatch.setattr(auditing, "_STEPS", newest)
        (mended,) = auditor.look()
        assert (mended.kind, mended.severity.text) == ("replicas-parted", "note")
        assert (mended.since_step, mended.names) == (2, ("first.weight",))
        assert "are again at the end of step" in mended.what
        assert auditor.look() == (mended,)  # and it stays
    assert [one.severity.text for one in audit(whole)] == ["note"]


def test_a_rank_that_is_not_heard_of_yet_makes_nothing_equal(
    recorded: dict[str, Recording],
) -> None:
    """Rank 1 stands apart, and its batch of the newest step has not come, or never comes."""
    whole = recorded["parted_for_a_while"]
    growing = grown(whole, 2)
    auditor = Auditor(growing)
    (before,) = auditor.look()
    notes = tuple(note for note in whole.notes(Fingerprints, rank=0) if note.step == 3)
    growing.append(Batch(0, 1, whole.records(ranks=0, steps=3), notes))
    assert (before.kind, before.severity.text) == ("replicas-parted", "wrong numbers")
    for found in (auditor.look(), audit(growing)):
        parted = [one for one in found if one.kind == "replicas-parted"]
        assert [one.severity.text for one in parted] == ["wrong numbers"]


def test_a_note_that_what_comes_later_takes_back_goes(
    recorded: dict[str, Recording], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that a hook averages among some ranks only, until all are averaged."""
    (mended,) = audit(recorded["parted_for_a_while"])
    possible = dataclasses.replace(mended, sure="possible")
    auditor = Auditor(recorded["parted_for_a_while"])
    monkeypatch.setattr(auditing, "audit", lambda source, known: (possible,))
    assert auditor.look() == (possible,)
    monkeypatch.setattr(auditing, "audit", lambda source, known: ())
    assert auditor.look() == ()


def test_findings_of_one_kind_stay_apart(
    recorded: dict[str, Recording], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two causes of one kind are two findings, also when they are found again and again."""
    whole = recorded["no_sync_step"]
    (first,) = audit(whole)
    said = [
        dataclasses.replace(first, kind="bucket-incomplete", what=f"{name} missing", names=(name,))
        for name in ("a", "b")
    ]
    later = [
        dataclasses.replace(said[0], what="a, c missing", names=("a", "c"), since_step=5),
        said[1],
    ]
    auditor = Auditor(whole)
    for found in (said, said, later, said):
        monkeypatch.setattr(auditing, "audit", lambda source, known, found=found: tuple(found))
        told = auditor.look()
        assert [one.names[0] for one in told] == ["a", "b"]
        assert {one.since_step for one in told} == {first.since_step}
    assert told[0].names == ("a", "c") and told[0].what == "a missing"
    auditor = Auditor(whole)  # whichever was listed first
    for found in (said[::-1], later):
        monkeypatch.setattr(auditing, "audit", lambda source, known, found=found: tuple(found))
        told = auditor.look()
    assert [one.names for one in told] == [("a", "c"), ("b",)]


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


def test_steps_that_went_by_are_counted_and_looked_at_once_it_rests(
    recorded: dict[str, Recording], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cause is in step 1 of 3, and a look is at the newest one only, which has what follows."""
    whole = recorded["no_sync_step"]
    monkeypatch.setattr(auditing, "_STEPS", 1)
    monkeypatch.setattr(auditing, "_SECONDS", 0.0)
    auditor = Auditor(grown(whole, 0))
    assert auditor.look() == () and auditor.looked.skipped == 0
    auditor.recording = whole
    assert auditor.findings("grown") == ()
    until(lambda: auditor.looked.steps == 2)
    assert auditor.looked.skipped == 1
    assert [one.kind for one in auditor.known] == ["replicas-parted"]
    assert {one.kind for one in auditor.looked.unchecked} == {one.kind for one in whole.unchecked()}
    until(lambda: auditor.findings("grown") and auditor.looked.skipped == 0)
    assert auditor.known == audit(whole)
