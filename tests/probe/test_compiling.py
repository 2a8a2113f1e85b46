"""What is recorded of torch.compile is what Dynamo, DDPOptimizer and gloo did."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddpviz import events
from ddpviz.events import NO_MODULE, Cause, Compiled, Graph, GraphBreak, Kind, Recompile, Split
from ddpviz.probe import Recorder
from tests import compiled
from tests.fidelity import scenarios
from tests.ranks import run_ranks

#: Linear layers of 64 x 64 with bias, BatchNorm, a head of 10.
PARAMETERS = 2 * compiled.LAYERS + 4
SPLIT = ("ddp_optimizer", "compiled first")
WHOLE = ("one bucket", "no_optimization", "without compiled forward")
PYTHON = ("python_reducer", "python_reducer, no autograd")


@pytest.fixture(scope="module")
def outcomes() -> list[dict[tuple[str, bool], Any]]:
    return compiled.outcomes()


def notes(outcome: dict[tuple[str, bool], Any], case: str, cls: type) -> list[Any]:
    batches = outcome[case, True]["batches"]
    return [note for batch in batches for note in batch.notes if isinstance(note, cls)]


def records(outcome: dict[tuple[str, bool], Any], case: str, kind: Kind) -> np.ndarray:
    found = np.concatenate([batch.records for batch in outcome[case, True]["batches"]])
    return found[found["kind"] == kind]


@pytest.mark.parametrize("case", SPLIT)
def test_a_split_graph_has_subgraphs_with_all_parameters_between_them(
    outcomes: list[dict[tuple[str, bool], Any]], case: str
) -> None:
    for outcome in outcomes:
        (split,) = notes(outcome, case, Split)
        found = {graph.id: graph for graph in notes(outcome, case, Graph)}
        assert len(split.parts) == len(split.graphs) == 3
        assert found[split.graph].role == "forward"
        inside = [index for part in split.parts for index in part.parameters]
        assert inside == list(range(PARAMETERS))  # in the order of the forward, each once
        for part, place in zip(split.parts, split.graphs, strict=True):
            graph = found[place]
            assert (graph.role, graph.parent) == ("subgraph", split.graph)
            assert tuple(one.parameter for one in graph.arguments) == part.parameters
            assert graph.bytes == part.bytes  # none is used twice
        assert split.cap_bytes == int(0.02 * 2**20) and split.first_cap_bytes == 16_384
        assert sum(part.nodes for part in split.parts) == found[split.graph].nodes


@pytest.mark.parametrize("case", [*SPLIT, *WHOLE])
def test_a_backend_gets_the_graphs_that_are_recorded(
    outcomes: list[dict[tuple[str, bool], Any]], case: str
) -> None:
    """The backend of these runs keeps the code it was given."""
    for outcome in outcomes:
        found = notes(outcome, case, Graph)
        leaves = [one for one in found if one.id not in {other.parent for other in found}]
        # A subgraph's result is put into a tuple on its way to the backend.
        codes = [_body(code) for code in outcome[case, True]["graphs"]]
        assert [_body(one.code) for one in leaves] == codes
        assert not any(one.cut for one in found)
        timed = records(outcome, case, Kind.GRAPH)
        assert sorted(timed["index"]) == [one.id for one in found]
        assert (timed["end_ns"] > timed["begin_ns"]).all() and not timed["flags"].any()


def _body(code: str) -> str:
    return code[: code.rindex("return ")].strip()


@pytest.mark.parametrize("case", WHOLE)
def test_a_graph_that_is_not_split_is_one(
    outcomes: list[dict[tuple[str, bool], Any]], case: str
) -> None:
    for outcome in outcomes:
        (graph,) = notes(outcome, case, Graph)
        assert graph.role == "forward" and len(graph.arguments) == PARAMETERS
        splits = notes(outcome, case, Split)
        assert [len(one.parts) for one in splits] == ([1] if case == "one bucket" else [])


def test_a_model_that_ran_before_it_was_wrapped_compiles_nothing_more(
    outcomes: list[dict[tuple[str, bool], Any]],
) -> None:
    for outcome in outcomes:
        (graph,) = notes(outcome, "run first", Graph)
        (how,) = notes(outcome, "run first", Compiled)
        (module,) = notes(outcome, "run first", events.Module)
        assert graph.module == events.NO_MODULE and graph.time_ns < how.time_ns
        assert how.order == "compile then wrap"
        assert not notes(outcome, "run first", Split)
        assert module.parameters[0].name == "layers.0.weight"  # as without torch.compile


@pytest.mark.parametrize("case", [name for name in compiled.CASES if name != "eager"])
def test_how_it_was_compiled_is_noted(
    outcomes: list[dict[tuple[str, bool], Any]], case: str
) -> None:
    given = compiled.CASES[case]
    for outcome in outcomes:
        how = notes(outcome, case, Compiled)[-1]
        assert how.optimize_ddp == given.mode
        assert how.order == ("wrap then compile" if given.order == "wrap" else "compile then wrap")
        assert how.reducer == ("Python" if case in PYTHON else "C++")
        assert how.compiled_autograd == given.autograd


def test_breaks_and_recompilations_are_dynamos_own(
    outcomes: list[dict[tuple[str, bool], Any]],
) -> None:
    for outcome in outcomes:
        found = notes(outcome, "broken", GraphBreak)
        counted = outcome["broken", True]["counted"]["graph_break"]
        assert len(found) >= sum(counted.values())  # Dynamo counts no call of graph_break()
        assert [one for one in found if "graph_break" in one.reason]
        again = notes(outcome, "broken", Recompile)
        reasons = [one[4] for one in outcome["broken", True]["compiled"] if one[4]]
        mine = [one.reasons[0] for one in again if one.module == 0]
        assert mine and set(mine) <= set(reasons)
        assert all("size mismatch" in one for one in mine)
        assert not notes(outcome, "ddp_optimizer", Recompile)


@pytest.mark.parametrize("case", PYTHON)
def test_python_reducers_collectives_are_the_flight_recorders(
    outcomes: list[dict[tuple[str, bool], Any]], case: str
) -> None:
    for outcome in outcomes:
        launched = records(outcome, case, Kind.COLLECTIVE_LAUNCHED)
        launched = launched[launched["cause"] != Cause.USER]  # a barrier before
        mine = launched[launched["cause"] == Cause.PYTHON_REDUCER]
        steps = [mine[mine["step"] == step] for step in range(compiled.STEPS)]
        assert [len(one) for one in steps] == compiled.STEPS * [PARAMETERS]
        assert all(list(one["index"]) == list(range(PARAMETERS)) for one in steps)
        done = records(outcome, case, Kind.COLLECTIVE_DONE)
        done = done[done["cause"] != Cause.USER]
        assert sorted(done["sequence"]) == sorted(launched["sequence"])
        # No broadcast of buffers, which are then each rank's own.
        assert not (launched["cause"] == Cause.BUFFERS).any()
        if scenarios.HAS_FLIGHT_RECORDER:
            entries = outcome[case, True]["collectives"]
            assert len(entries) == len(launched)
            assert sum(name == "gloo:all_reduce" for name, _, _ in entries) == len(mine)
    first, second = (outcome[case, True]["buffers"][0] for outcome in outcomes)
    assert not np.array_equal(first, second)


def test_the_compiled_backward_has_an_all_reduce_of_each_parameter(
    outcomes: list[dict[tuple[str, bool], Any]],
) -> None:
    for outcome in outcomes:
        (backward,) = [
            one for one in notes(outcome, "python_reducer", Graph) if one.role == "backward"
        ]
        reduces = [one for one in backward.operations if one.endswith("all_reduce")]
        assert len(reduces) == len({one.parameter for one in backward.arguments}) == PARAMETERS
        assert not [
            one
            for one in notes(outcome, "python_reducer, no autograd", Graph)
            if one.role != "forward"
        ]


def two_modules(rank: int, world_size: int) -> list[events.Batch]:
    """In one backward of hooks that run, in one into which they are traced, and one of them alone
    once the other, which came first, is gone."""
    from torch._dynamo import compiled_autograd, config

    config.optimize_ddp = "python_reducer"
    batches: list[events.Batch] = []
    recorder = Recorder(sinks=[batches.append]).install()
    modules = [DDP(torch.nn.Linear(4, 4)) for _ in range(2)]
    backward = torch.compile(backend="eager")
    for step in range(3):
        if step == 2:
            first = weakref.ref(modules[0])
            while modules[0]._accum_grad_hooks:  # they hold what they are of
                modules[0]._accum_grad_hooks.pop().remove()
            del modules[0]
            torch._dynamo.reset()
            gc.collect()
            assert first() is None
        with recorder.step():
            loss = torch.stack([module(torch.ones(2, 4)).sum() for module in modules]).sum()
            if step:
                with compiled_autograd._enable(backward):
                    loss.backward()
            else:
                loss.backward()
    recorder.close()
    return batches


def test_whose_a_collective_of_python_reducer_is_it_says_or_it_is_not_known() -> None:
    for batches in run_ranks(two_modules, 2):
        found = np.concatenate([batch.records for batch in batches])
        sent = found[found["kind"] == Kind.COLLECTIVE_LAUNCHED]
        sent = sent[sent["cause"] == Cause.PYTHON_REDUCER]
        modules = [sorted(sent["module"][sent["step"] == step]) for step in range(3)]
        assert modules == [[0, 0, 1, 1], 4 * [NO_MODULE], [1, 1]]
        notes = [note for batch in batches for note in batch.notes]
        assert not [note for note in notes if isinstance(note, events.Unavailable)]


def test_with_ddp_optimizer_gradients_of_a_bucket_come_before_the_last_ones(
    outcomes: list[dict[tuple[str, bool], Any]],
) -> None:
    """The first bucket is launched before the last gradient is there."""
    for outcome in outcomes:
        ready = records(outcome, "ddp_optimizer", Kind.GRAD_READY)
        launched = records(outcome, "ddp_optimizer", Kind.COLLECTIVE_LAUNCHED)
        launched = launched[launched["cause"] == Cause.BUCKET]
        for step in range(2, compiled.STEPS):
            last_ns = ready[ready["step"] == step]["begin_ns"].max()
            first = launched[(launched["step"] == step) & (launched["index"] == 0)]
            assert len(first) == 1 and first["begin_ns"][0] < last_ns


@pytest.mark.slow
def test_inductor_fuses_all_reduces_and_both_sequences_are_recorded() -> None:
    for outcome in run_ranks(fused, 2):
        assert outcome["recorded"]["bits"] == outcome["bare"]["bits"]
        for mine, eager in zip(
            outcome["recorded"]["gradients"], outcome["eager"]["gradients"], strict=True
        ):
            np.testing.assert_allclose(mine, eager, rtol=1e-4, atol=1e-6)
        batches = outcome["recorded"]["batches"]
        found = [note for batch in batches for note in batch.notes if isinstance(note, Graph)]
        by_role = {note.role: note for note in found}
        before, after = by_role["before fusion"], by_role["after fusion"]
        assert before.parent == after.parent == by_role["backward"].id
        counts = [sum("all_reduce" in one for one in it.operations) for it in (before, after)]
        assert counts == [PARAMETERS, 1]
        assert "aten.cat" in after.operations and "aten.split" in after.operations
        assert "all_reduce" in after.code
        launched = np.concatenate([batch.records for batch in batches])
        launched = launched[launched["kind"] == Kind.COLLECTIVE_LAUNCHED]
        launched = launched[launched["cause"] == Cause.PYTHON_REDUCER]
        assert list(launched["step"]) == list(range(compiled.STEPS))
        assert set(launched["bytes"]) == {by_role["backward"].bytes}


def fused(rank: int, world_size: int) -> dict[str, Any]:
    import torch._functorch.config
    import torch._inductor.config

    torch._inductor.config.fx_graph_cache = False
    torch._functorch.config.enable_autograd_cache = False
    case = dataclasses.replace(compiled.CASES["python_reducer"], cap_mb=1, backend="inductor")
    return {  # eager first: what python_reducer sets holds for the rest of the process
        "eager": compiled.train(
            dataclasses.replace(compiled.CASES["eager"], cap_mb=1), rank, False
        ),
        "bare": compiled.train(case, rank, False),
        "recorded": compiled.train(case, rank, True),
    }


class Logging(nn.Module):
    """Its layers' second notes what its weights are on the way: nodes that nobody needs later."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 64)
        self.second = nn.Linear(64, 64)
        self.register_buffer("log", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        self.log.copy_(self.second.weight.mean().detach())
        return self.second(x)


def with_a_side(rank: int, world_size: int) -> tuple[list[int], list[int]]:
    """By how much parts were extended: as recorded, and as DDPOptimizer's own buckets have it."""
    from torch._dynamo.backends import distributed

    own: list[int] = []
    told = distributed.pretty_print_buckets

    def heard(buckets: Any, cap: int) -> None:
        own.extend(one.opcount_increased_to_capture_external_output for one in buckets)
        told(buckets, cap)

    distributed.pretty_print_buckets = heard
    torch.distributed._DEFAULT_FIRST_BUCKET_BYTES = 4_096  # type: ignore[attr-defined]
    batches: list[events.Batch] = []
    recorder = Recorder(sinks=[batches.append]).install()
    torch.manual_seed(0)
    ddp = DDP(Logging(), bucket_cap_mb=0.01)
    torch.compile(ddp, backend="aot_eager")(torch.randn(4, 64)).square().mean().backward()
    recorder.close()
    (split,) = [note for batch in batches for note in batch.notes if isinstance(note, Split)]
    return [part.extended for part in split.parts], own


def test_a_part_that_goes_on_for_a_result_says_by_how_many_nodes() -> None:
    for parts, own in run_ranks(with_a_side, 2):
        assert parts == own
        assert len(parts) > 1 and max(own) > 0
