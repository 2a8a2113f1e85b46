"""Promise 1: observation changes nothing. The same run with and without recording."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch.distributed as dist

from ddpviz.events import Batch, Fingerprints
from tests.fidelity import scenarios
from tests.ranks import run_ranks


def both(rank: int, world_size: int) -> dict[tuple[str, str], dict[str, Any]]:
    """Every mode, bare and recorded, in one process: collectives, plans, bits, free hook slot."""
    from ddpviz.probe import Recorder

    outcome: dict[tuple[str, str], dict[str, Any]] = {}
    spans_ns = []
    for mode in scenarios.MODES:
        for variant in ("bare", "recorded", "attached", "fingerprinted"):
            dist.barrier()
            begin_ns = time.time_ns()
            batches: list[Batch] = []
            recorder = None
            if variant != "bare":
                every = int(variant == "fingerprinted")
                recorder = Recorder(sinks=[batches.append], fingerprints=every)
            if variant in ("recorded", "fingerprinted"):
                recorder.install()
            modules = scenarios.build(mode)
            plans = scenarios.train(mode, rank, modules, 5)
            if variant == "attached":
                recorder.install()
                for module in modules:
                    recorder.adopt(module)
            plans += scenarios.train(mode, rank, modules, scenarios.STEPS - 5, first=5)
            spans_ns.append((begin_ns, time.time_ns()))
            outcome[mode, variant] = {
                "plans": plans,
                "bits": scenarios.fingerprint(modules),
                "hooks": len(modules[0]._comm_hooks),
            }
            if recorder is not None:
                recorder.close()
            notes = [note for batch in batches for note in batch.notes]
            outcome[mode, variant]["taken"] = sum(isinstance(n, Fingerprints) for n in notes)
    flights = scenarios.flights(spans_ns)
    for found, entries in zip(outcome.values(), flights, strict=True):
        found["collectives"] = [scenarios.shape(entry) for entry in entries]
    return outcome


@pytest.fixture(scope="module", params=[2, 3])
def outcomes(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return run_ranks(both, request.param)


@pytest.mark.parametrize("variant", ["recorded", "attached", "fingerprinted"])
@pytest.mark.parametrize("mode", scenarios.MODES)
def test_recording_changes_nothing(outcomes: list[dict[str, Any]], mode: str, variant: str) -> None:
    for outcome in outcomes:
        bare, recorded = outcome[mode, "bare"], outcome[mode, variant]
        if scenarios.HAS_FLIGHT_RECORDER:
            assert len(bare["collectives"]) > scenarios.STEPS
        assert recorded["collectives"] == bare["collectives"]
        assert recorded["plans"] == bare["plans"]
        assert recorded["bits"] == bare["bits"]
        assert recorded["hooks"] == bare["hooks"]


@pytest.mark.parametrize("mode", scenarios.MODES)
def test_fingerprints_are_taken_in_every_step_of_these_runs_and_only_there(
    outcomes: list[dict[str, Any]], mode: str
) -> None:
    for outcome in outcomes:
        assert outcome[mode, "recorded"]["taken"] == outcome[mode, "attached"]["taken"] == 0
        # Of parameters and buffers after it at least, and of gradients.
        assert outcome[mode, "fingerprinted"]["taken"] >= 3 * scenarios.STEPS


def test_plans_do_change_in_these_runs(outcomes: list[dict[str, Any]]) -> None:
    """The comparison above has something to compare: buckets are rebuilt in these modes."""
    for mode in ("plain", "static_graph", "no_sync"):
        plans = outcomes[0][mode, "bare"]["plans"]
        assert len(plans[0][0]) == 1
        assert len(plans[-1][0]) > 1
