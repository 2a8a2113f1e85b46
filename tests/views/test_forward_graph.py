"""The strips of used parameters: a cell per parameter and rank, and why it was not searched."""

from __future__ import annotations

import pytest

from ddpviz import analysis
from ddpviz.events import Batch, Configuration, Module, Unused
from ddpviz.recording import Recording
from tests.analysis import inside
from tests.views.pictures import in_lane, picture_of, rows_of
from tests.views.samples import batches_of, sample_recording


def test_a_cell_per_parameter_is_as_the_table_has_it(recorded: dict[str, Recording]) -> None:
    recording = recorded["unused here"]
    table = analysis.forward_graph(recording, 0)
    picture = picture_of(recording, "forward_graph", 0)
    for rank in range(inside.RANKS):
        cells = in_lane(picture, rows_of(picture, "bars"), f"rank {rank}")
        mine = table[table["rank"] == rank].sort_values("parameter")
        assert [cell["head"] for cell in cells] == list(mine["name"])
        kinds = ["used" if used else "unused" for used in mine["used"]]
        assert [cell["kind"] for cell in cells] == kinds
    assert {c["head"] for c in rows_of(picture, "bars", "unused")} == {"side.weight", "side.bias"}


def test_who_used_what_is_in_the_title_and_the_facts(recorded: dict[str, Recording]) -> None:
    recording = recorded["unused here"]
    first, second = (picture_of(recording, "forward_graph", step) for step in (0, 1))
    names = "side.weight, side.bias"
    assert f"rank 0 did not use {names} (2 of 10 parameters), rank 1 did not" in first.title
    assert any(f"gets a gradient on all of them: {names}" in fact for fact in first.facts)
    assert second.title == f"step 1: no rank used {names} (2 of 10 parameters)"
    assert any(f"stays as it was: {names}" in fact for fact in second.facts)
    everything = picture_of(recording, "forward_graph", 2)
    assert everything.title == "step 2: every rank used all 10 parameters"
    assert any("went through _DDPSink" in fact for fact in everything.facts)


def test_why_it_was_not_searched_is_said(recorded: dict[str, Recording]) -> None:
    picture = picture_of(recorded["convnet"], "forward_graph")
    assert picture.title.endswith("not searched for: find_unused_parameters is off")
    assert {row["kind"] for row in rows_of(picture, "bars")} == {"unknown"}
    assert any("did not go through _DDPSink" in fact for fact in picture.facts)


def test_a_forward_in_no_sync_has_a_strip_of_its_own(recorded: dict[str, Recording]) -> None:
    recording = recorded["unused here"]
    picture = picture_of(recording, "forward_graph", 3)
    forwards = analysis.forward_graph(recording, 3).groupby(["rank", "iteration"]).ngroups
    assert len(picture.y_labels or ()) == forwards == 2 * inside.RANKS
    assert any("a forward in no_sync prepares for no reduction" in f for f in picture.facts)


@pytest.mark.parametrize("ranks", [2, 20])
def test_cells_of_many_parameters_are_merged(ranks: int) -> None:
    big = Recording()
    for batch in batches_of(sample_recording(ranks=ranks, parameters_per_bucket=400)):
        assert any(isinstance(note, Module) for note in batch.notes)
        big.append(Batch(batch.rank, 0, batch.records, batch.notes))
    picture = picture_of(big, "forward_graph")
    assert len(rows_of(picture, "bars")) <= 4_000
    assert len(picture.y_labels or ()) <= 17


def test_of_ranks_that_are_not_all_there_nothing_is_said_of_all(
    recorded: dict[str, Recording],
) -> None:
    part = Recording()
    for batch in batches_of(recorded["unused here"]):
        if batch.rank < 2:
            known = (Configuration, Unused)
            notes = [n for kind in known for n in recorded["unused here"].notes(kind, batch.rank)]
            part.append(Batch(batch.rank, 0, batch.records, (*batch.notes, *notes)))
    picture = picture_of(part, "forward_graph", 1)
    names = "side.weight, side.bias"
    assert picture.title == f"step 1: none of the 2 known ranks used {names} (2 of 10 parameters)"
    assert f"used on none of the 2 known ranks: {names}" in picture.facts
    assert not any("stays as it was" in fact for fact in picture.facts)
    everything = picture_of(part, "forward_graph", 2)
    assert everything.title == "step 2: each of the 2 known ranks used all 10 parameters"


def test_forwards_are_not_told_as_ranks(recorded: dict[str, Recording]) -> None:
    facts = picture_of(recorded["unused here"], "forward_graph", 3).facts
    assert sum("searched for unused parameters in forward " in fact for fact in facts) == 2
    assert not any(" on rank " in fact for fact in facts if "searched" in fact or "Sink" in fact)
