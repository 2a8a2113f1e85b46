"""The view of torch.compile: real runs in every mode, and a sample whose borders are known."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from bokeh.models import Column

from ddpviz import analysis
from ddpviz.analysis.graph_borders import missed_borders
from ddpviz.events import RECORD, Batch, Graph
from ddpviz.export import reading
from ddpviz.recording import UNNUMBERED, Recording
from ddpviz.views.compile_nodes import kind_of
from ddpviz.views.live import LONGEST_READING
from ddpviz.views.live_views import VIEWS
from ddpviz.views.text import ON_CUDA
from tests import compiled
from tests.compiled import recording
from tests.views.pictures import picture_of, rows_of
from tests.views.samples import compile_it, on_cuda, sample_recording

PARAMETERS = 2 * compiled.LAYERS + 4
SPLIT = ("ddp_optimizer", "compiled first")
BURSTS = ("run first", "one bucket", "no_optimization", "without compiled forward")
PYTHON = ("python_reducer", "python_reducer, no autograd")


def said(picture: object) -> str:
    """All texts on the figure."""
    return " ".join(row["text"] for row in rows_of(picture, "labels"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("graphs", "buckets", "missed"),
    [
        ([{0, 1}, {2, 3}], [{2, 3}, {0, 1}], []),
        ([{0, 1}, {2, 3}], [{3}, {1, 2}, {0}], [0, 1]),
        ([{0, 1, 2, 3}], [{3, 2}, {1, 0}], [0]),
        ([{0, 1}], [{3, 2}, {1, 0}], []),  # what no graph has is nobody's border
        ([{0}, {1}], [{0, 1}], []),
        ([{0}], [], []),
    ],
)
def test_borders_that_no_graph_meets(
    graphs: list[set[int]], buckets: list[set[int]], missed: list[int]
) -> None:
    assert missed_borders(graphs, buckets) == missed


@pytest.mark.parametrize("case", [name for name in compiled.CASES if name != "eager"])
def test_who_reduces_stands_above_in_every_mode(case: str) -> None:
    (row,) = recording(case).compile(rank=0).to_dict("records")
    told = said(picture_of(recording(case), "compile"))
    assert row["who_reduces"] in told
    assert ("silently left out" in told) == (case in PYTHON)
    assert row["dropped"] in told


@pytest.mark.parametrize("case", SPLIT)
def test_lines_are_the_tables_borders(case: str) -> None:
    table = recording(case).borders(compiled.STEPS - 1, rank=0)
    picture = picture_of(recording(case), "compile")
    lines = [row for row in rows_of(picture, "lines") if " of graph " in row["head"]]
    assert len(lines) == len(table)
    several = table.groupby("bucket")["part"].transform("nunique") > 1
    assert sum(row["kind"] == "several" for row in lines) == several.sum() > 0
    assert picture.title == (
        "step 3: at none of the 2 borders between buckets a graph ends, so 2 of 3 buckets "
        "wait for more than one graph"
    )
    backward = rows_of(picture, "bars", "backward")
    assert len(backward) == len(rows_of(picture, "bars", "forward")) == 3
    # Backward runs them the other way round.
    assert [row["reading"] for row in sorted(backward, key=lambda row: row["top"])] == [
        row["reading"]
        for row in sorted(rows_of(picture, "bars", "forward"), key=lambda row: -row["top"])
    ]


@pytest.mark.parametrize("case", [*SPLIT, *BURSTS])
def test_collectives_are_where_the_records_have_them(case: str) -> None:
    whole = recording(case)
    picture = picture_of(whole, "compile")
    table = analysis.buckets(whole, compiled.STEPS - 1)
    table = table[table["rank"] == 0].set_index("bucket")
    bars = {row["bucket"]: row for row in rows_of(picture, "bars", "in_flight")}
    assert set(bars) == set(table.index)
    first = bars[0]["left"]
    for bucket, row in bars.items():
        apart = (table["launched_ns"][bucket] - table["launched_ns"][0]) / 1e6
        assert row["left"] - first == pytest.approx(apart)
        took = (table["done_ns"][bucket] - table["launched_ns"][bucket]) / 1e6
        assert row["right"] - row["left"] == pytest.approx(took)


@pytest.mark.parametrize("case", BURSTS)
def test_one_backward_is_said_to_burst(case: str) -> None:
    picture = picture_of(recording(case), "compile")
    gradients = f"one backward for all: {PARAMETERS} gradients in one burst"
    assert picture.title.startswith(f"step 3: {gradients}")
    assert len(rows_of(picture, "bars", "backward")) == 1
    assert not any(row["kind"] == "several" for row in rows_of(picture, "lines"))


@pytest.mark.parametrize("case", PYTHON)
def test_python_reducers_all_reduces_are_each_drawn(case: str) -> None:
    picture = picture_of(recording(case), "compile")
    assert len(rows_of(picture, "bars", "in_flight")) == PARAMETERS
    assert not rows_of(picture, "bars", "bucket")
    assert picture.title.startswith(f"step 3: {PARAMETERS} all-reduces")
    assert "no broadcast of buffers" in said(picture)
    nodes = rows_of(picture, "bars", "all_reduce")
    assert len(nodes) == (PARAMETERS if case == "python_reducer" else 0)


def test_nodes_before_and_after_fusion_are_two_rows() -> None:
    """As Inductor leaves them: tests/probe has a run that is fused."""
    whole = recording("python_reducer")
    twin = Recording()
    for rank in whole.ranks:
        for outcome in (compiled.outcomes()[rank]["python_reducer", True],):
            for batch in outcome["batches"]:
                twin.append(batch)
        (backward,) = [one for one in whole.notes(Graph, rank=rank) if one.role == "backward"]
        nodes = ("aten.mm", "_c10d_functional.all_reduce", "_c10d_functional.wait_tensor")
        fused = ("aten.mm", "aten.mm", "aten.cat", *nodes[1:], "aten.split")
        made = [
            dataclasses.replace(
                backward,
                id=90 + place,
                parent=backward.id,
                role=role,
                operations=operations,
                nodes=len(operations),
            )
            for place, (role, operations) in enumerate(
                (("before fusion", 2 * nodes), ("after fusion", fused))
            )
        ]
        twin.append(Batch(rank, UNNUMBERED, np.zeros(0, RECORD), tuple(made)))
    picture = picture_of(twin, "compile")
    told = said(picture)
    assert told.index("nodes before the fusion pass") < told.index("nodes after it")
    assert "nodes before the fusion pass: 6 nodes, 2 all-reduces" in told
    assert "nodes after it: 6 nodes, 1 all-reduce" in told
    assert len(rows_of(picture, "bars", "all_reduce")) == 3
    assert len(rows_of(picture, "bars", "fuse")) == 2
    assert [kind_of(one) for one in fused] == ["node", "node", "fuse", "all_reduce", "wait", "fuse"]


def test_what_was_not_compiled_is_said_in_a_sentence() -> None:
    for whole in (recording("eager"), sample_recording()):
        picture = picture_of(whole, "compile")
        assert picture.empty and "it runs eagerly, or it was compiled before recording" in (
            picture.title
        )
    assert picture_of(Recording(), "compile").title == "press Start to train"


def test_borders_that_agree_are_said_to() -> None:
    whole = sample_recording()
    compile_it(whole, [[0, 1], [2, 3], [4, 5]])
    assert picture_of(whole, "compile", 2).title == (
        "step 2: each of 3 buckets ends where one of 3 graphs ends"
    )
    first = picture_of(whole, "compile", 0)
    assert first.title == "step 0: 3 graphs, but 1 bucket, which waits for the last of them"
    assert all(
        row["kind"] == "several" for row in rows_of(first, "lines") if "of graph" in row["head"]
    )


def test_code_is_read_with_the_names_of_parameters() -> None:
    whole = recording("ddp_optimizer")
    picture = picture_of(whole, "compile")
    read = VIEWS["compile"].read
    assert read is not None and len(picture.readings) == 3
    key, label = picture.readings[0]
    assert label.startswith("forward of graph 0: 2 parameters")
    text = read(whole, key)
    assert "_weight_: layers.0.weight\n" in text and "def forward(" in text
    named = {row["reading"] for row in rows_of(picture, "bars")} - {""}
    assert named == {key for key, _ in picture.readings}


@pytest.mark.parametrize("key", ["", "0", "0/99", "5/0", "a/b", "0/-1"])
def test_an_unknown_graph_is_refused_in_a_sentence(key: str) -> None:
    read = VIEWS["compile"].read
    assert read is not None
    with pytest.raises(LookupError, match="found no graph"):
        read(recording("ddp_optimizer"), key)


def test_code_that_is_cut_says_so() -> None:
    whole = sample_recording()
    compile_it(whole, [[0, 1], [2, 3], [4, 5]], code="x = 1\n" * 20_000)
    read = VIEWS["compile"].read
    assert read is not None
    text = read(whole, picture_of(whole, "compile", 2).readings[0][0])
    assert len(text) <= LONGEST_READING and text.splitlines()[-1].endswith("was recorded")


def test_a_figure_alone_has_the_code_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sample_recording()
    compile_it(whole, [[0, 1], [2, 3], [4, 5]])
    figure = whole.figure("compile")
    select = figure.select_one({"name": "readings compile"})
    keys = [key for key, _ in picture_of(whole, "compile").readings]
    assert [key for key, _ in select.options] == ["", *keys]
    assert _texts(figure)[keys[0]].endswith("def forward(self): ...")
    # What a page has no room for is said to be left out.
    monkeypatch.setattr(reading, "_MOST_CHARACTERS", 150)
    texts = list(_texts(whole.figure("compile")).values())
    assert texts[0].endswith("def forward(self): ...")
    assert all(text.startswith("left out, as this page has no room") for text in texts[1:])
    assert not isinstance(whole.figure("plan"), Column)


def _texts(figure: Any) -> dict[str, str]:
    select = figure.select_one({"name": "readings compile"})
    (callback,) = select.js_property_callbacks["change:value"]
    texts: dict[str, str] = json.loads(callback.args["texts"])
    return texts


def test_on_cuda_it_says_what_a_bar_is() -> None:
    whole = sample_recording()
    twin = on_cuda(whole)
    compile_it(twin, [[0, 1], [2, 3], [4, 5]])
    assert ON_CUDA in picture_of(twin, "compile", 2).facts
    compile_it(whole, [[0, 1], [2, 3], [4, 5]])
    assert ON_CUDA not in picture_of(whole, "compile", 2).facts


def test_many_graphs_and_buckets_are_counted_not_drawn() -> None:
    whole = sample_recording(buckets=40)
    compile_it(whole, [[one] for one in range(80)])
    picture = picture_of(whole, "compile", 2)
    assert "and 64 more graphs" in said(picture) and "and 24 more buckets" in said(picture)
    assert len(rows_of(picture, "bars", "bucket")) == 16
    assert picture.height_px < 1000


def test_labels_are_shorter_where_the_figure_is_narrow() -> None:
    def labels(width_px: int) -> list[str]:
        picture = picture_of(recording("ddp_optimizer"), "compile", width_px=width_px)
        texts = picture.sources["labels"]["text"]
        return [text for text in texts if "graph 0" in text or "bucket 0" in text]

    wide = labels(1300)
    assert sorted(text.partition(" 0")[0] for text in wide) == [
        "backward of graph",
        "bucket",
        "forward of graph",
    ]
    assert all(text.endswith("iB") for text in wide)
    assert sorted(labels(460)) == ["backward of graph 0", "bucket 0", "forward of graph 0"]
    assert sorted(labels(320)) == ["bucket 0", "graph 0", "graph 0"]
