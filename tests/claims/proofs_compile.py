"""The claims about torch.compile; what trains for several steps is in ``tests.compiled``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ddpviz.events import Cause, Compiled, Graph, Kind
from tests import compiled
from tests.claims.evidence import Runs
from tests.claims.proofs import proves
from tests.claims.runs_compile import LAYERS

MIB = 2**20
PARAMETERS = 2 * compiled.LAYERS + 4


def outcome(case: str) -> list[dict[str, Any]]:
    """Of each rank, as it was recorded."""
    return [found[case, True] for found in compiled.outcomes()]


def sent_in_steps(found: dict[str, Any]) -> list[str]:
    """Operations by the flight recorder, without those of the constructor: a check, parameters
    (float) and the buffers' int64."""
    names = [name.removeprefix("gloo:") for name, _, _ in found["collectives"]]
    return names[4:]


@proves("one-backward-node")
def all_of_one_node(runs: Runs) -> None:
    for found in runs["nodes"]:
        assert found["no_optimization"] == [2 * LAYERS]
    for found in outcome("no_optimization"):
        ready = _records(found, Kind.GRAD_READY)
        last = ready[ready["step"] == compiled.STEPS - 1]
        order = list(last["index"][np.argsort(last["begin_ns"], kind="stable")])
        assert sorted(order) == list(range(PARAMETERS))
        assert order != sorted(order, reverse=True)


@proves("four-modes")
def the_fourth_is_another(runs: Runs) -> None:
    from torch._dynamo import config

    assert config.optimize_ddp is True
    pairs = zip(outcome("no_optimization"), outcome("without compiled forward"), strict=True)
    for one, other in pairs:
        assert one["graphs"] == other["graphs"] and len(one["graphs"]) == 1
        assert one["bits"] == other["bits"]
        assert one["collectives"] == other["collectives"]


@proves("split-at-bucket-borders")
def unless_it_is_small(runs: Runs) -> None:
    assert {len(found["graphs"]) for found in outcome("ddp_optimizer")} == {3}
    assert {len(found["graphs"]) for found in outcome("one bucket")} == {1}


@proves("only-inside-ddps-forward")
def whichever_is_outside(runs: Runs) -> None:
    assert {len(found["graphs"]) for found in outcome("compiled first")} == {3}
    for found in outcome("run first"):
        assert len(found["graphs"]) == 1
        assert [note.order for note in _notes(found, Compiled)] == ["compile then wrap"]


@proves("put-around-your-backend")
def with_the_cap_alone(runs: Runs) -> None:
    for found in runs["optimizer"]:
        assert found["by"] == "torch._dynamo.convert_frame"
        assert found["given"] == ["backend_compile_fn", "bucket_bytes_cap"]
        assert found["caps"] == (2 * MIB, MIB)


@proves("inductor-would-drop-it")
def whatever_compiles(runs: Runs) -> None:
    for found in runs["optimizer"]:  # its backend is neither Inductor nor AOTAutograd
        assert found["asked"] >= len(found["parts"]) - 1 > 0


@proves("split-and-compiled-part-by-part")
def each_by_the_backend(runs: Runs) -> None:
    for found in runs["optimizer"]:
        assert found["split"] == 1 and found["interpreter"]
        parts = len(found["parts"])
        assert parts == len(found["compiled"]) == found["guards"] > 1
        assert found["parts"] == [f"submod_{number}" for number in range(parts)]


@proves("first-part-mirrors-the-reducer")
def its_first_limit_is_its_own(runs: Runs) -> None:
    for found in runs["caps"]:
        assert MIB <= found["parts"][0] < 2 * MIB <= found["buckets"][0]
        assert found["parts"][1] >= 2 * MIB
        assert "AssertionError" in found["refused"] and "First bucket" in found["refused"]


@proves("used-by-an-earlier-node")
def used_by_a_later_one(runs: Runs) -> None:
    for found in runs["external"]:
        assert found == {
            "used by a later one": True,
            "uses an earlier one": False,
            "used inside": False,
        }


@proves("several-compiled-nodes")
def a_node_for_each_part(runs: Runs) -> None:
    for found in runs["nodes"]:
        parts = found["ddp_optimizer"]
        assert len(parts) > 2 and sum(parts) == 2 * LAYERS and all(parts)


@proves("one-subgraph-per-bucket")
def buckets_wait_for_two(runs: Runs) -> None:
    recording = compiled.recording("ddp_optimizer")
    for rank in recording.ranks:
        table = recording.borders(compiled.STEPS - 1, rank)
        parts = table.groupby("bucket")["part"].nunique()
        assert len(parts) == 3 and (parts > 1).sum() == 2
        first = recording.borders(0, rank)
        assert set(first["bucket"]) == {0} and first["part"].nunique() == 3


@proves("python-reducer-turns-on")
def and_never_off(runs: Runs) -> None:
    for found in runs["python_reducer"]:
        assert found["before"][0] is False and found["before"][2] is False
        assert found["half a MiB"] == (True, 0, True)
        assert found["after"] == (True, 3, True)


@proves("the-reducer-is-skipped")
def nothing_is_marked(runs: Runs) -> None:
    for found in runs["python_reducer"]:
        assert not found["alone"]["marked"] and not found["compiled"]["marked"]
    for found in outcome("python_reducer"):
        assert not len(_records(found, Kind.PREPARE_FOR_BACKWARD))
        assert not len(_records(found, Kind.GRAD_READY))


@proves("only-your-forward-runs")
def buffers_go_apart(runs: Runs) -> None:
    for found in outcome("python_reducer"):
        assert set(sent_in_steps(found)) == {"all_reduce"}
        assert not (_records(found, Kind.COLLECTIVE_LAUNCHED)["cause"] == Cause.BUFFERS).any()
    first, second = (found["buffers"][0] for found in outcome("python_reducer"))
    assert not np.array_equal(first, second)
    for found in outcome("ddp_optimizer"):
        assert "broadcast" in sent_in_steps(found)


@proves("hooks-become-nodes")
def one_for_each(runs: Runs) -> None:
    for found in outcome("python_reducer"):
        (backward,) = [note for note in _notes(found, Graph) if note.role == "backward"]
        assert sum("all_reduce" in one for one in backward.operations) == PARAMETERS


@proves("compiled-autograd-is-required")
def right_without_it(runs: Runs) -> None:
    for found in runs["python_reducer"]:
        assert found["alone"]["sent"] == ["all_reduce"] * 2 * LAYERS
    for eager, mine in zip(outcome("eager"), outcome("python_reducer, no autograd"), strict=True):
        for one, other in zip(eager["gradients"], mine["gradients"], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@proves("fused-by-a-pass")
def not_by_other_backends(runs: Runs) -> None:
    """What the pass puts together; tests/probe/test_compiling.py compiles with it and counts."""
    from torch._inductor import config

    assert config._fuse_ddp_communication_passes[0] == "fuse_ddp_with_concat_op"
    for found in runs["fused"]:
        assert found == {1: [4, 4, 4, 2], 2: [4, 8, 2]}
    for found in runs["python_reducer"]:
        assert found["compiled"]["sent"] == ["all_reduce"] * 2 * LAYERS


@proves("no-python-while-it-runs")
def hooks_are_compiled(runs: Runs) -> None:
    for found in runs["python_reducer"]:
        assert found["compiled"]["hooks"] == 0
        assert found["alone"]["hooks"] == 2 * LAYERS


@proves("the-backward-stays-eager")
def it_is_compiled(runs: Runs) -> None:
    for found in runs["nodes"]:
        assert len(found["no_optimization"]) == 1


@proves("no-overlap-at-all")
def with_what_is_left(runs: Runs) -> None:
    for found in outcome("no_optimization"):
        ready, launched = (
            _records(found, kind) for kind in (Kind.GRAD_READY, Kind.COLLECTIVE_LAUNCHED)
        )
        step = compiled.STEPS - 1
        first = launched[(launched["step"] == step) & (launched["cause"] == Cause.BUCKET)]
        assert len(first) > 1
        assert first["begin_ns"].min() < ready[ready["step"] == step]["begin_ns"].max()


def _records(found: dict[str, Any], kind: Kind) -> np.ndarray:
    every: np.ndarray = np.concatenate([batch.records for batch in found["batches"]])
    return every[every["kind"] == kind]


def _notes(found: dict[str, Any], kind: type) -> list[Any]:
    return [note for batch in found["batches"] for note in batch.notes if isinstance(note, kind)]
