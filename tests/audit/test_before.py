"""What was done to a module before recording began is seen, and faults of it are found."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch.distributed as dist

from ddpviz.analysis.audit import audit, not_checked
from ddpviz.events import NO_MODULE, Kind, Unavailable
from ddpviz.recording import Recording
from tests.audit import before
from tests.audit.nets import train
from tests.audit.test_findings import check
from tests.ranks import run_ranks

#: Steps of hooked runs, and buckets in them: of one before they are built for the last time, of two
#: afterwards.
BUCKETS = {
    "torch's low rank hook": 8,
    "hook of a trained module": 6,
    "hook of another recording": 6,
}


@pytest.fixture(scope="module", params=[0, 1], ids=["without fingerprints", "with fingerprints"])
def recorded(request: pytest.FixtureRequest) -> tuple[dict[str, Recording], bool]:
    return before.recordings(request.param), bool(request.param)


def unseen(recording: Recording) -> list[str]:
    """Of the module; what this torch has not is no module's."""
    return [note.what for note in recording.notes(Unavailable) if note.module != NO_MODULE]


def test_a_healthy_run_has_no_findings(recorded: tuple[dict[str, Recording], bool]) -> None:
    assert {name: audit(recorded[0][name]) for name in before.WELL} == dict.fromkeys(
        before.WELL, ()
    )


def test_a_fault_is_found(recorded: tuple[dict[str, Recording], bool]) -> None:
    recordings, sampled = recorded
    for name, expected in before.EXPECTED.items():
        if sampled or not expected.kind.startswith("hook"):
            check(name, recordings[name], before.EXPECTED)
        else:
            assert audit(recordings[name]) == ()
    assert set(before.EXPECTED) == set(before.FAULTY)


@pytest.mark.parametrize("name", [name for name in before.BEFORE if "hook" in name])
def test_buckets_of_a_hook_from_before_are_seen(
    name: str, recorded: tuple[dict[str, Recording], bool]
) -> None:
    recording = recorded[0][name]
    if name == "built-in hook":
        why = {one.kind: one.why for one in not_checked(recording)}
        assert "cannot be seen" in why["bucket-incomplete"]
        assert set(unseen(recording)) == {"buckets"}
        return
    assert not unseen(recording)
    assert "bucket-incomplete" not in {one.kind for one in not_checked(recording)}
    hooks = recording.records(kinds=[Kind.COMM_HOOK])
    hooks = hooks[hooks["module"] == 0]
    many = BUCKETS.get(name, 5)
    assert len(hooks) == 2 * many and (hooks["end_ns"] > hooks["begin_ns"]).all()
    buckets = recording.buckets()
    assert len(buckets[buckets.module == 0]) == (0 if "sends nothing" in name else 2 * many)
    finalized = recording.records(kinds=[Kind.FINALIZE])
    assert len(finalized[finalized["module"] == 0]) == (16 if "low rank" in name else 6)


def test_parameters_that_ddp_does_not_know_are_fingerprinted(
    recorded: tuple[dict[str, Recording], bool],
) -> None:
    recordings, sampled = recorded
    if not sampled:
        return
    for name in ("unfrozen", "unfrozen, with views"):
        replicas = recordings[name].replicas()
        parted = replicas[replicas.what.isin(["gradients", "parameters"]) & (replicas.step >= 0)]
        assert len(parted) == 6
        assert set(parted["names"]) == {("first.weight", "first.bias")}


def test_at_level_summary_one_cause_is_one_finding() -> None:
    found = {name: audit(one) for name, one in before.recordings(0, "summary").items()}
    for name in before.WELL:
        assert found[name] == ()
    for name in ("replaced", "replaced and searched for", "replaced by two"):
        assert [one.kind for one in found[name]] == ["parameter-replaced"]


def beside_a_profiler(rank: int, world_size: int) -> dict[str, Any]:
    """The hook's own thread has a profiler; then all is put back."""
    import ddpviz

    questions = dict(vars(dist.GradBucket))
    ddp = before.BEFORE["averaging hook"].make(rank)
    attached = ddpviz.attach(ddp)
    listening = dict(vars(dist.GradBucket)) != questions

    def profile(frame: Any, event: str, argument: Any) -> None:
        return None

    sys.setprofile(profile)
    train(rank, ddp)
    kept = sys.getprofile() is profile
    sys.setprofile(None)
    attached.close()
    recording = attached.recording
    assert recording is not None
    return {
        "kept": kept and listening and dict(vars(dist.GradBucket)) == questions,
        "notes": unseen(recording),
        "hooks": len(recording.records(kinds=[Kind.COMM_HOOK])),
        "buckets": len(recording.buckets()),
    }


def test_another_profiler_is_left_alone_and_the_hooks_return_not_seen() -> None:
    assert (
        run_ranks(beside_a_profiler, 2)
        == [{"kept": True, "notes": ["comm hook"], "hooks": 0, "buckets": 5}] * 2
    )
