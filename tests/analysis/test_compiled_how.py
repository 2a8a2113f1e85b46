"""What is said of models that Dynamo makes one graph of, several, part of one, or none."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddpviz.events import Batch
from ddpviz.recording import Recording
from ddpviz.views.compile_chart import chart_of
from ddpviz.views.compile_facts import finding
from tests.ranks import run_ranks

WIDTH, STEPS = 16, 3
#: By name: what is in the forward, the order, the backend.
CASES = {
    "plain": ("", "wrap", "aot_eager"),
    "unused": ("unused", "wrap", "aot_eager"),
    "eager backend": ("", "wrap", "eager"),
    "break": ("break", "wrap", "aot_eager"),
    "break, compiled first": ("break", "compile", "aot_eager"),
    "part": ("part", "wrap", "aot_eager"),
    "raises": ("raises", "wrap", "aot_eager"),
    "raises, compiled first": ("raises", "compile", "aot_eager"),
    "disabled": ("disabled", "wrap", "aot_eager"),
    "disabled, compiled first": ("disabled", "compile", "aot_eager"),
    "of torch": ("of torch", "wrap", "aot_eager"),
    "of torch, compiled first": ("of torch", "compile", "aot_eager"),
}
NOTHING = ("raises", "disabled", "of torch")


class Net(nn.Module):
    def __init__(self, what: str) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.what = what

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if self.what == "unused":
            return x
        if self.what == "raises":
            raise RuntimeError("of the model")
        if self.what == "break":
            torch._dynamo.graph_break()
        if self.what == "part":
            return torch.as_tensor(_eagerly(self.second, x))
        return torch.as_tensor(self.second(x))


class Disabled(Net):
    @torch.compiler.disable
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x)


@torch.compiler.disable
def _eagerly(layer: nn.Module, x: torch.Tensor) -> Any:
    return layer(x)


def every_case(rank: int, world_size: int) -> dict[str, list[Batch]]:
    return {name: _train(*case) for name, case in CASES.items()}


def _train(what: str, order: str, backend: str) -> list[Batch]:
    from ddpviz.probe import Recorder

    torch._dynamo.reset()
    batches: list[Batch] = []
    recorder = Recorder(sinks=[batches.append]).install()
    torch.manual_seed(0)
    net: Any = Disabled(what) if what == "disabled" else Net(what)
    if what == "of torch":
        net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))
    inner = torch.compile(net, backend=backend) if order == "compile" else net
    ddp = DDP(inner, find_unused_parameters=what == "unused")
    model = torch.compile(ddp, backend=backend) if order == "wrap" else ddp
    for _ in range(STEPS):
        try:
            model(torch.ones(4, WIDTH)).sum().backward()
        except RuntimeError as error:
            assert what == "raises" and "of the model" in str(error)
        ddp.zero_grad()
    recorder.close()
    return batches


@functools.cache
def recording(case: str) -> Recording:
    found = Recording()
    for outcome in outcomes():
        for batch in outcome[case]:
            found.append(batch)
    return found


@functools.cache
def outcomes() -> list[dict[str, list[Batch]]]:
    return run_ranks(every_case, 2)


def row_of(case: str) -> dict[str, Any]:
    (row,) = recording(case).compile(rank=0).to_dict("records")
    return {str(name): value for name, value in row.items()}


@pytest.mark.parametrize("case", CASES)
def test_how_it_was_to_be_compiled_is_known_also_where_nothing_was(case: str) -> None:
    row, (_, order, backend) = row_of(case), CASES[case]
    first = "wrap then compile" if order == "wrap" else "compile then wrap"
    assert (row["optimize_ddp"], row["order"], row["backend"]) == ("ddp_optimizer", first, backend)
    # Sequential is passed over only where Dynamo comes upon it, not where it is what is compiled.
    assert bool(row["graphs"]) == (case not in NOTHING and not case.startswith(NOTHING[:2]))


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ("raises", "nothing was compiled: a graph break at "),
        ("raises, compiled first", "nothing was compiled: a graph break at "),
        ("disabled", "Dynamo passes over the model's forward, as torch.compiler.disable is on it"),
        ("disabled, compiled first", "as torch.compiler.disable is on it"),
        ("of torch", "as Sequential.forward is written in torch itself"),
        ("eager backend", "not split; its backend 'eager' leaves the backward to autograd"),
        ("break", "not split by DDPOptimizer: the model is 2 compiled graphs, from a graph break"),
        ("break, compiled first", "the model is 2 compiled graphs, from a graph break at "),
        ("part", "not split: 2 of 4 parameters are not in the one compiled graph, from a graph br"),
    ],
)
def test_why_a_forward_is_not_split_or_not_compiled(case: str, why: str) -> None:
    row = row_of(case)
    assert why in row["split"]
    assert ("Sequential" in row["split"]) == (case == "of torch")
    if "a graph break" in why:  # where it was, in this file
        assert f"{__file__}:" in row["split"] and row["break_reasons"]


@pytest.mark.parametrize("case", CASES)
def test_who_reduces_agrees_with_how_it_is_split(case: str) -> None:
    row, bursts = row_of(case), recording(case).steps()["burst"]
    one_node = case in ("plain", "unused", "of torch, compiled first")
    assert ("is one compiled graph, so its backward is one node" in row["split"]) == one_node
    assert ("once the one backward of the whole graph" in row["who_reduces"]) == one_node
    assert "subgraph" not in row["who_reduces"] and row["subgraphs"] == 0
    several = case.startswith("break")
    assert ("as the backwards of the compiled graphs" in row["who_reduces"]) == several
    assert ("parameters that are not in it" in row["who_reduces"]) == (case == "part")
    if one_node:
        with_gradient = 2 if case == "unused" else 4
        told = f"all {with_gradient} gradients came in one burst"
        assert len(bursts) == 2 * STEPS and all(one.startswith(told) for one in bursts)
    else:
        assert not bursts.any()


@pytest.mark.parametrize(
    ("case", "title"),
    [
        ("unused", "one backward for all: 2 gradients in one burst of "),
        (
            "eager backend",
            "1 graph and 1 bucket: not split; its backend 'eager' leaves the backward",
        ),
        ("break", "2 graphs, but 1 bucket, which waits for the last of them"),
        ("part", "1 graph and 1 bucket: not split: 2 of 4 parameters are not in the one compiled"),
        ("disabled", "nothing was compiled: Dynamo passes over the model's forward, as torch.comp"),
    ],
)
def test_the_view_says_the_same(case: str, title: str) -> None:
    chart = chart_of(recording(case), STEPS - 1)
    assert chart is not None and finding(chart).startswith(title)


def test_borders_are_of_graphs_where_the_model_itself_is_broken() -> None:
    told = "disagree: 1 bucket for 2 graphs, which waits for more than one graph"
    assert row_of("break")["borders"] == told


def test_an_old_recording_has_no_word_of_what_is_passed_over() -> None:
    from ddpviz.events import Compiled, note_from_json, note_to_json

    data = note_to_json(recording("disabled").notes(Compiled, 0)[0])
    assert data.pop("passed_over")
    found = note_from_json(data)
    assert isinstance(found, Compiled) and found.passed_over == ""
