"""Real DDP on two ranks, in every mode that draws differently: the figure shows what was sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpviz import analysis, load
from ddpviz.probe import Recorder
from ddpviz.recording import RankWriter
from ddpviz.views.palette import STRETCHES
from ddpviz.views.selector import selectable
from ddpviz.views.source import read_run
from tests.fidelity import scenarios
from tests.ranks import run_ranks
from tests.views.frames import Framed
from tests.views.pictures import picture_of

STEPS = 4


def record_modes(rank: int, world_size: int, folder: str, modes: list[str]) -> None:
    """Record a run of each mode into a directory of its own."""
    for mode in modes:
        recorder = Recorder(sinks=[RankWriter(Path(folder) / mode, rank)])
        recorder.install()
        scenarios.train(mode, rank, scenarios.build(mode), STEPS)
        recorder.close()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("modes")
    run_ranks(record_modes, 2, str(folder), MODES)
    return folder


MODES = ["plain", "find_unused", "no_sync", "two_modules", "called_twice", "python_hook", "join"]


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_is_drawn_as_its_tables_say(recorded: Path, mode: str) -> None:
    recording = load(recorded / mode)
    run = read_run(recording)
    steps = [step for step in run.steps if step >= 0]
    assert steps
    for source in map(run.source, steps):
        rows = Framed(source)
        table = analysis.buckets(recording, source.step)
        for kind in STRETCHES:
            complete = int((table[f"{kind}_ms"] > 0).sum())
            drawn = rows.spans[rows.spans["kind"] == kind]
            cut_off = drawn["detail"].str.contains("at the latest")
            assert len(drawn) - int(cut_off.sum()) == complete, (mode, source.step, kind)
            assert drawn.loc[cut_off, "derived"].all()
            assert not drawn["detail"].str.contains("not ended").any()  # all steps were completed
        collectives = analysis.collectives(recording)
        other = collectives[
            (collectives["step"] == source.step) & ~collectives["cause"].isin(["bucket", "buffers"])
        ]
        rebuilds = rows.marks["head"].str.startswith("buckets rebuilt").sum()
        assert len(rows.marks) - rebuilds == len(other)
        assert (rows.spans["right"] > rows.spans["left"]).all()
    assert selectable(recording).layout is not None


def test_construction_shows_its_collectives_with_their_cause(recorded: Path) -> None:
    recording = load(recorded / "plain")
    source = read_run(recording).source(-1)
    rows = Framed(source)
    heads = " ".join(rows.marks["head"])
    assert "(verify)" in heads and "(initial state)" in heads
    assert rows.title.startswith("construction of Net: ")


def test_two_modules_are_constructed_one_after_the_other(recorded: Path) -> None:
    run = read_run(load(recorded / "two_modules"))
    assert [step for step in run.steps if step < 0] == [-1, -2]
    sequences = []
    for step in (-1, -2):
        called = run.source(step).collectives
        assert list(called["cause"]) == 2 * ["verify", "verify", "initial_state", "initial_state"]
        sequences.append(set(called["sequence"]))
        assert Framed(run.source(step)).title.startswith(f"construction {-step} of 2, Net: ")
    assert not sequences[0] & sequences[1]


def test_unused_parameters_send_a_map_that_is_marked(recorded: Path) -> None:
    recording = load(recorded / "find_unused")
    source = read_run(recording).source(2)
    assert Framed(source).marks["head"].str.contains("used map").sum() == 2


@pytest.mark.parametrize("case", ["two_modules", "called_twice"])
def test_a_view_of_one_backward_says_that_the_step_has_others(recorded: Path, case: str) -> None:
    recording = load(recorded / case)
    runs = len(recording.buckets(2)[["module", "iteration"]].drop_duplicates())
    for view in ("countdown", "finalize"):
        told = " ".join(picture_of(recording, view, 2).facts)
        assert ("more backward" in told) == (runs > 1)
    assert runs == (2 if case == "two_modules" else 1)
