"""Each fault is found with its ranks, names and step; a near miss of it is not."""

from __future__ import annotations

import functools
import importlib
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import ddpviz
from ddpviz.analysis.audit import KINDS, audit, not_checked
from ddpviz.events import Batch
from ddpviz.recording import Recording
from tests import compiled
from tests.audit import compiling, ends, faults, healthy, slow
from tests.audit.expected import BESIDE, EXPECTED, NEAR, Expected
from tests.audit.healthy import matrix
from tests.audit.recorded import record, recordings
from tests.fidelity import scenarios
from tests.ranks import run_ranks

#: Kinds of ranks that fail or wait, which are tested with these.
HANGS = ("hang", "mismatched-collectives", "rank-failed")


@pytest.fixture(scope="module")
def faulty() -> dict[str, Recording]:
    return recordings(faults.FAULTS | ends.ENDS)


@pytest.fixture(scope="module")
def late() -> dict[str, Recording]:
    return recordings(slow.SLOW | {"both": slow.late_and_exposed}, fingerprints=0)


@pytest.fixture(scope="module")
def in_graphs() -> dict[str, Recording]:
    return recordings(compiling.COMPILED)


@pytest.fixture(scope="module")
def well() -> dict[str, Recording]:
    return recordings(healthy.HEALTHY | matrix.MODES)


def check(name: str, recording: Recording, of: dict[str, Expected] = EXPECTED) -> None:
    expected = of[name]
    found = [one for one in audit(recording) if one.kind not in BESIDE.get(name, ())]
    assert [one.kind for one in found] == [expected.kind]
    (one,) = found
    expected.check(one)
    if one.view:
        assert recording.figure(one.view, one.view_step) is not None


@pytest.mark.parametrize("name", [*faults.FAULTS, *ends.ENDS])
def test_a_fault_is_found(name: str, faulty: dict[str, Recording]) -> None:
    check(name, faulty[name])


@pytest.mark.parametrize("name", [name for name in slow.SLOW if name in EXPECTED])
def test_lost_time_is_found(name: str, late: dict[str, Recording]) -> None:
    check(name, late[name])


def test_a_late_rank_and_a_slow_network_are_two_findings(late: dict[str, Recording]) -> None:
    found = {one.kind: one for one in audit(late["both"])}
    assert found.keys() == {"straggler", "exposed-communication"}
    assert found["straggler"].ranks == (1,)
    assert "waiting for a late rank not counted" in found["exposed-communication"].evidence


@pytest.mark.parametrize("name", [name for name in slow.SLOW if name not in EXPECTED])
def test_a_noisy_or_small_run_is_no_finding(name: str, late: dict[str, Recording]) -> None:
    assert audit(late[name]) == ()


@pytest.mark.parametrize("name", compiling.COMPILED)
def test_what_a_compiled_graph_keeps_from_being_sent(
    name: str, in_graphs: dict[str, Recording]
) -> None:
    if name in EXPECTED:
        check(name, in_graphs[name])
    else:
        assert audit(in_graphs[name]) == ()


@pytest.mark.parametrize("case", compiled.CASES)
def test_a_compiled_run_has_no_findings(case: str) -> None:
    """In every mode; of a model so small that it does not matter when its gradients are sent."""
    assert audit(compiled.recording(case)) == ()


@pytest.mark.parametrize("name", healthy.HEALTHY)
def test_a_healthy_run_has_no_findings(name: str, well: dict[str, Recording]) -> None:
    assert audit(well[name]) == ()


@pytest.mark.parametrize("name", matrix.MODES)
def test_no_knob_hook_or_mode_is_a_finding(name: str, well: dict[str, Recording]) -> None:
    """But what else runs on a machine can make a rank late in every step."""
    assert [one for one in audit(well[name]) if one.kind != "straggler"] == []


def test_of_three_ranks_the_one_that_stands_apart_is_named() -> None:
    of_ranks = recordings(faults.replicas.OF_THREE, world_size=3)
    found = {name: audit(recording) for name, recording in of_ranks.items()}
    assert {name: [(one.kind, one.ranks) for one in all_] for name, all_ in found.items()} == {
        "changed_on_the_last": [("gradients-changed", (2,))],
        "unsent_on_the_middle": [("initial-state", (1,))],
        "registered_on_the_last": [("models-differ", (2,))],
    }


def test_what_was_not_recorded_is_said_and_not_concluded_from() -> None:
    quiet = recordings(
        {"hook_sums": faults.hooks.hook_sums, "second": faults.backwards.second_backward}, 2, 0
    )
    assert audit(quiet["hook_sums"]) == ()
    why = {one.kind: one.why for one in not_checked(quiet["hook_sums"])}
    assert why["hook-not-mean"].startswith("no fingerprints were taken")
    # What needs no fingerprints is found without.
    assert [one.kind for one in audit(quiet["second"])] == ["second-backward"]
    assert "second-backward" not in why
    alone = Recording()
    assert audit(alone) == ()
    assert {one.kind for one in not_checked(alone)} >= {"straggler", "models-differ"}


def test_what_needs_no_fingerprints_is_found_without_them_and_is_less_sure() -> None:
    runs = {
        one.__name__: one
        for one in (
            faults.backwards.autograd_grad,
            faults.replicas.step_on_one,
            faults.replicas.second_optimizer,
            faults.replicas.local_sgd,
            healthy.backwards.frozen_critic,
            healthy.backwards.adversarial,
            healthy.backwards.grad_by_hand,
            healthy.backwards.probed,
            healthy.backwards.skipped_together,
            healthy.backwards.looked_into,
        )
    }
    quiet = recordings(runs, fingerprints=0)
    found = {
        name: [(one.kind, one.since_step, one.ranks, one.sure) for one in audit(recording)]
        for name, recording in quiet.items()
    }
    told = {name: all_ for name, all_ in found.items() if all_}
    assert told == {
        "autograd_grad": [("backward-unreduced", 0, (0, 1), "likely")],
        "step_on_one": [("optimizer-skipped", 1, (1,), "likely")],
        "local_sgd": [("no-sync-step", 0, (0, 1), "possible")],
    }


def test_what_was_known_of_the_steps_before_is_said_with_the_step_it_shows_in() -> None:
    """Of every third step fingerprints are taken: 0, 3, 6."""
    runs = {
        "rate": functools.partial(faults.replicas.learning_rate_later, 2),
        "changed": functools.partial(faults.replicas.changed_later, 2),
    }
    sampled = recordings(runs, fingerprints=3)
    (rate,), (changed,) = (audit(sampled[name]) for name in runs)
    assert (rate.kind, rate.since_step) == ("replicas-parted", 3)
    assert "step 3 on (equal when last looked at, in step 0)" in rate.evidence
    assert "gradients that were sampled until then did not" in rate.evidence
    assert (changed.kind, changed.since_step) == ("gradients-changed", 3)
    assert "step 3 on (equal when last looked at, in step 0)" in changed.evidence


def test_one_rank_alone_is_warned_of_and_what_was_not_checked_is_at_hand() -> None:
    whole = recordings({"learning_rate": faults.replicas.learning_rate})["learning_rate"]
    alone = Recording()
    for batch in run_ranks(_batches, 2)[1]:
        alone.append(Batch.from_bytes(batch))
    with pytest.warns(UserWarning, match="found rank 1 only, expected all 2"):
        assert alone.audit() == ()
    assert {one.kind for one in alone.unchecked()} >= {"replicas-parted", "models-differ"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [one.kind for one in whole.audit()] == ["replicas-parted"]
    assert "replicas-parted" not in {one.kind for one in whole.unchecked()}


def _batches(rank: int, world_size: int) -> list[bytes]:
    return record(faults.replicas.learning_rate, rank)


@pytest.mark.parametrize(("level", "found"), [("DETAIL", ["debug-detail"]), ("INFO", [])])
def test_detail_on_gloo_is_named_though_ddp_may_crash(
    level: str, found: list[str], tmp_path: Path
) -> None:
    """In processes of their own: torch reads the variable as it is imported."""
    command = f"from tests.audit import ends; ends.debug_ranks({str(tmp_path)!r})"
    subprocess.run(
        [sys.executable, "-c", command],
        env={**os.environ, "TORCH_DISTRIBUTED_DEBUG": level},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        timeout=120,
        check=level == "INFO",
    )
    told = audit(ddpviz.load(tmp_path))
    assert [one.kind for one in told] == found
    assert all(one.ranks == (0, 1) and one.severity.text == "failure" for one in told)


def test_at_level_summary_it_is_told_without_names() -> None:
    runs = {"unused_layer": faults.backwards.unused_layer}
    recording = recordings(runs, level="summary")["unused_layer"]
    (one,) = audit(recording)
    assert (one.kind, one.since_step, one.ranks) == ("backward-unreduced", 1, (0, 1))
    assert "head-of-line" in {one.kind for one in not_checked(recording)}


def test_every_kind_has_a_run_that_has_it() -> None:
    elsewhere = {"debug-detail", "backward-unreduced", *HANGS}
    assert {one.kind for one in EXPECTED.values()} | elsewhere == set(KINDS)


def test_every_kind_has_a_near_miss_that_is_silent() -> None:
    """The runs are those of the tests above."""
    silent = {*healthy.HEALTHY, *(slow.SLOW.keys() | compiling.COMPILED) - EXPECTED.keys()}
    assert NEAR.keys() == set(KINDS)
    for near in NEAR.values():
        module, _, name = near.rpartition(".")
        assert hasattr(importlib.import_module(module), name) if module else near in silent


def test_every_mode_of_the_scenarios_is_in_the_clean_matrix() -> None:
    assert set(scenarios.MODES) <= {name.removeprefix("mode ") for name in matrix.MODES}
