"""Tables of compiled graphs: what was split, which borders agree, who reduces, what bursts."""

from __future__ import annotations

import pandas as pd
import pytest

from ddpviz import analysis
from ddpviz.events import Kind, Module
from tests import compiled
from tests.compiled import recording

PARAMETERS = 2 * compiled.LAYERS + 4
LAST = compiled.STEPS - 1
BURSTS = ("run first", "one bucket", "no_optimization", "without compiled forward")
PYTHON = ("python_reducer", "python_reducer, no autograd")


@pytest.mark.parametrize("case", compiled.CASES)
def test_all_gradients_in_one_burst_is_said_where_the_backward_is_one_node(case: str) -> None:
    told = recording(case).steps()["burst"]
    assert len(told) == 2 * compiled.STEPS
    if case in BURSTS:
        assert all(
            text.startswith(f"all {PARAMETERS} gradients came in one burst") for text in told
        )
        assert "in one burst" in analysis.finding(recording(case), LAST)
    else:
        assert not told.any()
        assert "burst" not in analysis.finding(recording(case), LAST)


@pytest.mark.parametrize("case", compiled.CASES)
def test_a_backward_that_a_compiler_traces_is_none(case: str) -> None:
    """AOTAutograd traces one in the forward, before there is a loss."""
    for rank in (0, 1):
        for step in range(compiled.STEPS):
            (backward,) = recording(case).records(kinds=Kind.BACKWARD, ranks=rank, steps=step)
            (forward,) = recording(case).records(kinds=Kind.FORWARD, ranks=rank, steps=step)
            assert backward["begin_ns"] >= forward["end_ns"]


def test_ranks_have_the_same_graphs() -> None:
    table = recording("ddp_optimizer").graphs()
    columns = ["graph", "role", "parent", "part", "nodes", "bytes", "parameter_names", "code"]
    first, second = (table[table["rank"] == rank][columns] for rank in (0, 1))
    assert first.to_dict("records") == second.to_dict("records")
    parts = first[first["role"] == "subgraph"]
    assert list(parts["part"]) == [0, 1, 2] and (parts["parent"] == 0).all()
    (whole,) = first[first["role"] == "forward"].index
    assert first[["parent", "part"]].loc[whole].isna().all()
    assert parts["parameter_names"].iloc[0] == ("layers.0.weight", "layers.0.bias")
    assert table["compile_ms"].notna().all()


def test_borders_that_disagree_are_seen() -> None:
    """DDP closes a bucket at its limit, in the middle of a subgraph."""
    found = recording("ddp_optimizer").borders(LAST, rank=0)
    assert found["parameters"].sum() == PARAMETERS
    assert set(found["graph"]) == {1, 2, 3} and list(found["sequence"].isna()) == len(found) * [
        False
    ]
    per_bucket = found.groupby("bucket")["completes"].sum()
    assert (per_bucket == 1).all()
    (told,) = recording("ddp_optimizer").compile(rank=0)["borders"]
    assert told.startswith("disagree: 3 buckets for 3 subgraphs")
    (told,) = recording("no_optimization").compile(rank=0)["borders"]
    assert told == ""


@pytest.mark.parametrize("case", ["ddp_optimizer", "compiled first", "inductor"])
def test_each_part_has_its_parameters_and_hands_them_over_together(case: str) -> None:
    """By the Reducer's own ready times: one part after the other, from the last to the first."""
    for rank in (0, 1):
        graphs = recording(case).graphs(rank)
        parts = graphs[graphs["role"] == "subgraph"].sort_values("part")
        plans = recording(case).plans(rank)
        plans = plans[plans["version"] == plans["version"].max()]
        borders = recording(case).borders(LAST, rank)
        for by, names in (
            ("part", dict(zip(parts["part"], parts["parameter_names"], strict=True))),
            ("bucket", dict(zip(plans["bucket"], plans["parameter_names"], strict=True))),
        ):
            mine = borders.groupby(by)["parameter_names"].sum().to_dict()
            assert {key: set(of) for key, of in mine.items()} == {
                key: set(of) for key, of in names.items()
            }
        ready = recording(case).records(kinds=Kind.GRAD_READY, ranks=rank, steps=LAST)
        note = recording(case).notes(Module, rank=rank)[0]
        at = {note.parameters[one["index"]].name: int(one["begin_ns"]) for one in ready}
        spans = [
            (min(at[name] for name in of), max(at[name] for name in of))
            for of in parts["parameter_names"]
        ]
        assert len(spans) == 3
        for (begin, _), (_, end) in zip(spans, spans[1:], strict=False):
            assert end <= begin  # a later part's gradients are all there before an earlier one's


@pytest.mark.parametrize("case", compiled.CASES)
def test_who_reduces_and_what_is_dropped(case: str) -> None:
    table = recording(case).compile(rank=0)
    if case == "eager":
        assert not len(table)
        return
    (row,) = table.to_dict("records")
    python = case in PYTHON
    assert row["who_reduces"].startswith("python_reducer" if python else "the C++ Reducer")
    assert bool(row["dropped"]) == python
    assert row["split"].startswith("split" if row["subgraphs"] else "not split")
    before = "was compiled and run before DDP was put around it"
    assert (before in row["split"]) == (case == "run first")
    assert row["all_reduces"] == (PARAMETERS if case == "python_reducer" else 0)
    assert row["backward_graphs"] == (case == "python_reducer")
    assert pd.isna(row["fused_all_reduces"])  # Inductor did not run
    assert (row["recompilations"] > 0) == (case == "broken")
    assert row["breaks"] == len(row["break_reasons"])


@pytest.mark.parametrize("case", PYTHON)
def test_what_python_reducer_hides_is_not_known(case: str) -> None:
    table = recording(case).steps()
    assert not table["buckets"].any() and not table["buffer_broadcasts"].any()
    assert table["hidden_communication_ms"].isna().all()
    assert table["exposed_communication_ms"].isna().all()
    assert analysis.finding(recording(case), LAST).startswith(
        "python_reducer reduced 68 KiB in 12 "
    )
    assert not len(recording(case).borders())


def test_a_recording_keeps_graphs_on_disk(tmp_path) -> None:  # type: ignore[no-untyped-def]
    from ddpviz.recording import load

    recording("ddp_optimizer").save(tmp_path / "saved")
    again = load(tmp_path / "saved")
    for name in ("graphs", "compile", "borders"):
        mine, other = getattr(recording("ddp_optimizer"), name)(), getattr(again, name)()
        assert mine.to_dict("records") == other.to_dict("records")
