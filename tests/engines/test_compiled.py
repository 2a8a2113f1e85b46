"""Compile settings: what goes together, what a change takes, and that it is so on real ranks."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from ddpviz.engines import ConfigurationError, Session
from ddpviz.engines.compilations import Compilations
from ddpviz.engines.compiled import Compile, first_cap_mb, leaks
from ddpviz.events import RECORD, Batch, Cause, Compiled, Graph, Kind, Module, Split
from ddpviz.views.compile_chart import chart_of
from ddpviz.views.compile_facts import finding

PYTHON = {"compile_mode": "python_reducer", "compiled_autograd": True}


def test_what_is_not_compiled_makes_no_difference() -> None:
    assert Compile(compile_backend="eager").effective() == Compile()
    assert Compile("ddp_optimizer", "eager").effective() == Compile("ddp_optimizer", "eager")


def test_only_leaving_python_reducer_needs_new_engines() -> None:
    python = Compile("python_reducer")
    assert leaks(python, Compile()) and leaks(python, Compile("ddp_optimizer"))
    assert not leaks(Compile("ddp_optimizer"), python)
    assert not leaks(python, Compile("python_reducer", compiled_autograd=True))


def test_the_first_limit_is_lowered_for_a_small_cap_and_ddp_optimizer_alone() -> None:
    assert first_cap_mb(Compile("ddp_optimizer"), {"bucket_cap_mb": 0.25}) == 0.25
    assert first_cap_mb(Compile("ddp_optimizer"), {"bucket_cap_mb": 1}) is None
    assert first_cap_mb(Compile("ddp_optimizer"), {}) is None
    assert first_cap_mb(Compile("no_optimization"), {"bucket_cap_mb": 0.25}) is None


def test_what_ranks_compile_is_told_until_they_have() -> None:
    told = []
    compilations = Compilations(lambda: told.append(compilations.now()))

    begin_ns = time.time_ns() - 12 * 10**9

    def batch(sequence: int, kind: Kind, end_ns: int, *notes: Any, rank: int = 1) -> Batch:
        rows = [(begin_ns, end_ns, 0, 0, 0, 7, -1, 0, rank, 0, kind, 0, 255, 255, 0, 0)]
        return Batch(rank, sequence, np.array(rows, RECORD), notes)

    where = ("0/0", "inductor", "forward", "model.py", 1, 3, (), (), 0, "", "")
    compilations.take(batch(0, Kind.COMPILE, 0))
    compilations.take(batch(1, Kind.STEP, 2, Graph(7, 0, -1, 1, "forward", *where)))
    compilations.take(batch(2, Kind.GRAPH, 2))
    part = ("0/0", "inductor", "forward", "model.py", 1, 4, (), (), 0, "", "", 3)
    for graph in (8, 9):
        compilations.take(batch(graph, Kind.STEP, 2, Graph(graph, 0, 7, 1, "subgraph", *part)))
    compilations.take(batch(10, Kind.COMPILE, 2))
    assert [one.partition(",")[0] for one in told] == [
        "rank 1 traces what is to be compiled",
        "rank 1 compiles graph 1 (forward of 3 operations)",
        "rank 1 traces what is to be compiled",
        "rank 1 compiles subgraph 1 of 3 (4 operations)",
        "rank 1 compiles subgraph 2 of 3 (4 operations)",
        "",
    ]
    assert all(re.search(r", 1[23] s$", one) for one in told[:-1])  # since the whole began
    for rank in (1, 0):
        compilations.take(batch(11, Kind.COMPILE, 0, rank=rank))
    both = compilations.now().split("; ")
    assert [one.split(" ")[:2] for one in both] == [["rank", "0"], ["rank", "1"]]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"compiled_autograd": True}, "hooks compiled autograd cannot trace"),
        ({"compile_mode": "ddp_optimizer", "compiled_autograd": True}, "the C++ Reducer reduces"),
        ({"compile_mode": "python_reducer", "comm_hook": "fp16"}, "exclude each other"),
        ({"compile_mode": True}, "expected one of 'none', 'ddp_optimizer'"),
        ({"compile_backend": "nonsense"}, "expected one of 'inductor'"),
        ({"compile_order": "both"}, "expected one of 'wrap then compile'"),
    ],
)
def test_what_cannot_work_is_refused_in_a_sentence(
    session: Session, given: dict[str, Any], why: str
) -> None:
    session.load("convnet", bucket_cap_mb=1)
    predicted = session.predict(**given)
    with pytest.raises(ConfigurationError, match=re.escape(why)) as refused:
        session.configure(**given)
    assert predicted.refused == str(refused.value) and "\n" not in predicted.refused


def test_a_list_of_caps_below_the_first_bucket_compiles_too(session: Session) -> None:
    """DDP keeps the largest as its cap, which DDPOptimizer would refuse."""
    session.load("convnet", bucket_cap_mb_list=[0.125, 0.25], batch_size=2, image_size=8)
    outcome = session.configure(compile_mode="ddp_optimizer", compile_backend="eager")
    assert "first limit is lowered from 1 to 0.25 MiB" in outcome
    session.run(1)
    session.configure(compile_mode="none")


def test_modes_are_switched_on_running_engines_and_compile_what_they_say(
    session: Session,
) -> None:
    """A cap below DDP's first bucket, at which DDPOptimizer alone would fail."""
    session.load("convnet", bucket_cap_mb=0.25, batch_size=2, image_size=8)
    begin = len(session.recording.notes(Compiled, 0))
    given = {"compile_mode": "ddp_optimizer", "compile_backend": "aot_eager"}
    predicted, pids = session.predict(**given), session.pids
    assert "resets Dynamo" in predicted.needs
    assert "first limit is lowered from 1 to 0.25 MiB" in predicted.needs
    outcome = session.configure(**given)
    assert outcome.startswith("re-wrapped, Dynamo reset")
    assert "first limit is lowered from 1 to 0.25 MiB" in outcome
    said = []
    remove = session.on_change(lambda: said.append(session.status().reason))
    session.run(2)
    remove()
    assert [one for one in said if "rank 0 compiles " in one or "rank 0 traces" in one]
    subgraphs = [one for one in session.recording.notes(Graph, 0) if one.role == "subgraph"]
    parents = Counter(one.parent for one in subgraphs)
    assert subgraphs and {one.siblings == parents[one.parent] for one in subgraphs} == {True}
    session.configure(compile_order="compile then wrap")
    session.run(2)
    session.configure(compile_mode="no_optimization")
    session.run(2)
    assert session.pids == pids  # nothing leaks into these
    assert len(set(session.checksums().values())) == 1
    found = session.recording.notes(Compiled, 0)[begin:]
    assert [(one.optimize_ddp, one.order, one.backend) for one in found] == [
        ("ddp_optimizer", "wrap then compile", "aot_eager"),
        ("ddp_optimizer", "compile then wrap", "aot_eager"),
        ("no_optimization", "compile then wrap", "aot_eager"),
    ]
    modules = {one.module for one in found}
    splits = [one for one in session.recording.notes(Split, 0) if one.module in modules]
    assert [len(one.parts) > 1 for one in splits] == [True, True]
    assert {one.first_cap_bytes for one in splits} == {2**18}
    knobs = {knob.name: knob for knob in session.knobs()}
    assert knobs["compile_mode"].value == "no_optimization"
    assert "python_reducer first" in (knobs["compiled_autograd"].disabled or "")


def test_leaving_python_reducer_gives_new_engines_and_says_so_before(session: Session) -> None:
    session.load("convnet", batch_size=2, image_size=8, compile_backend="aot_eager", **PYTHON)
    session.run(1)
    pids = session.pids
    predicted = session.predict(compile_mode="none", compiled_autograd=False)
    assert predicted.needs.startswith("restarts the engines")
    assert session.configure(compile_mode="none", compiled_autograd=False) == "restarted"
    assert not {*session.pids.values()} & {*pids.values()}
    session.run(2)
    assert len(set(session.checksums().values())) == 1
    (row,) = session.recording.compile(rank=0).tail(1).to_dict("records")
    assert row["compiled_autograd"] and row["dropped"]
    assert row["all_reduces"] == row["parameters"] > 10


def _reduced(session: Session, steps: int) -> list[tuple[int, int]]:
    """(cause, module) of each collective in the last of so many steps of rank 0."""
    session.run(steps)
    step = session.recording.last_step
    sent = session.recording.records(kinds=Kind.COLLECTIVE_LAUNCHED, ranks=0, steps=step)
    return [(int(one["cause"]), int(one["module"])) for one in sent]


@pytest.fixture
def leaving(session: Session) -> Iterator[Session]:
    """Whose processes are not of python_reducer any more for the tests that follow."""
    yield session
    session.load("mlp", layers=1, width=8)


def test_a_wrap_within_python_reducer_leaves_no_hooks_of_the_one_before(leaving: Session) -> None:
    """They would reduce each gradient once more, in no_sync too; and each is of its own module."""
    session = leaving
    session.load("mlp", layers=1, width=8, compile_mode="python_reducer", compile_backend="eager")
    first = session.recording.notes(Module, 0)[-1]
    expected = [Cause.PYTHON_REDUCER] * len(first.parameters)
    assert _reduced(session, 2) == [(cause, first.id) for cause in expected]
    for number in (1, 2):
        assert session.configure(bucket_cap_mb=5 + number).startswith("re-wrapped")
        assert _reduced(session, 1) == [(cause, first.id + number) for cause in expected]
    session.configure(accumulation=3)
    assert _reduced(session, 1) == [(cause, first.id + 2) for cause in expected]


def test_what_is_traced_into_a_backward_is_of_the_module_whose_backward_it_is(
    leaving: Session,
) -> None:
    """Functional collectives go to a group by its name, which the first module has taken."""
    session, small = leaving, {"layers": 1, "width": 8, "compile_backend": "eager", **PYTHON}
    session.load("mlp", **small)
    found = []
    for change in ("", "load", "wrap"):
        if change == "load":
            session.load("mlp", **small)
        elif change:
            session.configure(bucket_cap_mb=7)
        module = session.recording.notes(Module, 0)[-1]
        sent = _reduced(session, 2)
        assert sent == [(Cause.PYTHON_REDUCER, module.id)] * len(module.parameters)
        (row,) = session.recording.compile(rank=0).tail(1).to_dict("records")
        assert row["module"] == module.id and row["all_reduces"] == len(sent)
        step = session.recording.last_step
        chart = chart_of(session.recording, step)
        assert chart is not None and chart.of.module.id == module.id
        assert finding(chart).endswith("inside the compiled backward, none of them fused")
        graphs = session.recording.graphs(rank=0)
        assert list(graphs["role"][graphs["module"] == module.id]) == ["forward", "backward"]
        compiled = session.recording.records(kinds=Kind.COMPILE, ranks=0, steps=step - 1)
        assert set(compiled["module"][compiled["end_ns"] > 0]) == {module.id}
        found.append(module.id)
    assert len({*found}) == 3


def test_what_cannot_be_compiled_here_is_said() -> None:
    """Without a C++ compiler in its path a process has no Inductor, and all modes."""
    code = "from ddpviz.engines.compiling import unavailable; print(unavailable())"
    bare = {**os.environ, "PATH": "/nonexistent"}
    bare.pop("CXX", None)
    told = subprocess.run(
        [sys.executable, "-c", code], env=bare, capture_output=True, text=True, check=True
    ).stdout
    if torch.cuda.is_available():
        assert set(ast.literal_eval(told)) <= {"inductor"}  # there it needs Triton instead
    else:
        (why,) = ast.literal_eval(told).values()
        assert why.startswith("Inductor needs a C++ compiler, and found none")
