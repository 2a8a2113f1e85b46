"""Fingerprints: exact to one bit, the same wherever a tensor lies, and harmless."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from ddpviz import events
from ddpviz.events import Batch, Fingerprints, Kind
from ddpviz.probe import Recorder, hashing
from ddpviz.recording import Recording, intake
from tests.fidelity import scenarios
from tests.ranks import run_ranks


def hashes(tensors: list[torch.Tensor | None]) -> tuple[str, ...]:
    return hashing.fingerprints(tensors)[0]


def norms(
    tensors: list[torch.Tensor | None],
) -> tuple[tuple[float | None, ...], tuple[int, ...]]:
    return hashing.fingerprints(tensors)[1:]


#: More than one piece of words, with a rest.
WORDS = 2 * 65_536 + 37


def test_any_one_bit_shows() -> None:
    tensor = torch.randn(WORDS)
    (before,) = hashes([tensor])
    bits = tensor.view(torch.int32)
    for place in (0, 1, 65_535, 65_536, WORDS - 1):
        for bit in range(32):
            mask = 1 << bit if bit < 31 else -(2**31)
            bits[place] ^= mask
            assert hashes([tensor]) != (before,), (place, bit)
            bits[place] ^= mask
    assert hashes([tensor]) == (before,)


def test_changes_that_cancel_in_a_sum_show() -> None:
    tensor = torch.arange(1.0, 101.0)
    seen = {hashes([tensor])}
    flipped = tensor.clone()
    flipped[3], flipped[7] = -flipped[3], -flipped[7]
    swapped = tensor.clone()
    swapped[3], swapped[7] = tensor[7], tensor[3]
    moved = tensor + torch.eye(100)[3] - torch.eye(100)[7]
    for other in (flipped, swapped, moved, tensor[:99], torch.cat([tensor, torch.zeros(1)])):
        seen.add(hashes([other]))
    assert len(seen) == 6


def test_a_hash_is_that_of_the_bytes_alone() -> None:
    tensor = torch.randn(6, 50)
    (alone,) = hashes([tensor])
    among = hashes([torch.ones(3), tensor, None, tensor.t().contiguous().t(), tensor.clone()])
    assert among[1] == among[3] == among[4] == alone and among[2] == ""
    assert hashes([torch.zeros(2)]) != hashes([-torch.zeros(2)])  # equal as numbers
    nan = torch.tensor([float("nan")])
    assert hashes([nan]) == hashes([nan.clone()])


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(7),
        torch.tensor(True),
        torch.zeros(0),
        torch.arange(5, dtype=torch.uint8),
        torch.ones(5, dtype=torch.bfloat16),
        torch.ones(5, dtype=torch.float16),
        torch.ones(5, dtype=torch.float64),
        torch.ones(5, dtype=torch.complex64),
        torch.ones(3, 3).tril().to_sparse(),
        torch.ones(4, requires_grad=True),
    ],
)
def test_every_sort_of_tensor_has_one_and_keeps_what_it_has(tensor: torch.Tensor) -> None:
    version, before = tensor._version, tensor.detach().clone()
    (hashed,), ((norm,), (nonfinite,)) = hashes([tensor]), norms([tensor])
    assert len(hashed) == 16 and int(hashed, 16) >= 0
    dense = before.to_dense() if before.is_sparse else before
    assert norm == pytest.approx(float(dense.to(torch.complex128).abs().square().sum() ** 0.5))
    assert nonfinite == 0 and tensor._version == version
    assert tensor.grad is None


def test_a_norm_that_is_not_finite_is_none_and_counted() -> None:
    bad = torch.tensor([1.0, float("nan"), float("inf"), -float("inf")])
    found, nonfinite = norms([torch.ones(4), bad, None])
    assert found == (2.0, None, None) and nonfinite == (0, 3, 0)
    note = Fingerprints(0, 1, 1, 5, "gradients", hashes([torch.ones(4), bad]), found[:2], (0, 3))
    text = json.dumps(events.note_to_json(note), allow_nan=False)
    assert events.note_from_json(json.loads(text)) == note


@pytest.mark.parametrize("every", [-1, 1.5, True, "2", None])
def test_how_often_is_a_whole_number_of_steps(every: Any) -> None:
    with pytest.raises(ValueError, match="expected a whole number of steps"):
        Recorder(fingerprints=every)
    recorder = Recorder()
    with pytest.raises(ValueError, match="expected a whole number of steps"):
        recorder.fingerprint_every(every)


def sampled(rank: int, world_size: int) -> dict[str, Any]:
    """Every third step of six, then every one of two, then none of two; then attached."""
    import ddpviz

    batches: list[bytes] = []
    recorder = Recorder(sinks=[lambda batch: batches.append(batch.to_bytes())], fingerprints=3)
    recorder.install()
    modules = scenarios.build("plain")
    scenarios.train("plain", rank, modules, 6)
    recorder.fingerprint_every(1)
    scenarios.train("plain", rank, modules, 2, first=6)
    recorder.fingerprint_every(0)
    scenarios.train("plain", rank, modules, 2, first=8)
    recorder.close()
    refused = ""
    try:
        ddpviz.attach(modules[0], fingerprints=-1)
    except ValueError as error:
        refused = str(error)
    with ddpviz.attach(modules[0], fingerprints=2) as attached:
        scenarios.train("plain", rank, modules, 3, first=10)
    assert attached.recording is not None
    steps = [note.step for note in attached.recording.notes(Fingerprints)]
    return {"batches": batches, "refused": refused, "attached": steps}


def test_only_sampled_steps_are_fingerprinted_and_say_what_it_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (outcome,) = run_ranks(sampled, 1)
    assert "found -1 for how often" in outcome["refused"]
    assert outcome["attached"] == [-1] * 2 + [0] * 5 + [2] * 5
    batches = [Batch.from_bytes(data) for data in outcome["batches"]]
    recording = Recording()
    for batch in batches:
        recording.append(batch)
    whats = ["buffers before", "buffers after", "gradients", "parameters", "buffers"]
    steps = [0, 3, 6, 7]
    notes = recording.notes(Fingerprints)
    expected = [(-1, "initial parameters"), (-1, "initial buffers")]
    expected += [(step, what) for step in steps for what in whats]
    assert [(note.step, note.what) for note in notes] == expected
    spent = recording.records(kinds=Kind.FINGERPRINT)
    assert [recording.label(0, row["label"]) for row in spent] == [what for _, what in expected]
    assert list(spent["step"]) == [step for step, _ in expected]
    assert (spent["end_ns"] > spent["begin_ns"]).all()
    assert list(spent["index"][:7]) == [10, 3, 3, 3, 10, 10, 3]
    # Memory keeps the latest of what comes with every sampled step.
    monkeypatch.setattr(intake, "BULK_BOUND", 29)  # one step has 3 + 3 + 10 + 10 + 3 tensors
    bounded = Recording()
    for batch in batches:
        bounded.append(batch)
    assert [note.step for note in bounded.notes(Fingerprints)] == [7] * 5
    assert len(bounded.notes(events.Module)) == 1


def scheduled(rank: int, world_size: int) -> list[int]:
    """The first two steps and every fourth; step 6 is asked for."""
    import ddpviz

    modules = scenarios.build("no_buffers")
    schedule = ddpviz.Schedule(every=4, first=2)
    with ddpviz.attach(modules[0], fingerprints=schedule) as attached:
        scenarios.train("no_buffers", rank, modules, 6)
        attached.fingerprint()
        scenarios.train("no_buffers", rank, modules, 3, first=6)
    assert attached.recording is not None
    return [n.step for n in attached.recording.notes(Fingerprints) if n.what == "parameters"]


def test_a_schedule_has_first_steps_regular_ones_and_those_asked_for() -> None:
    assert run_ranks(scheduled, 1) == [[0, 1, 4, 6, 8]]
