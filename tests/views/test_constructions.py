"""Constructions in the figure: one entry each, and a failure outside of steps opens at its own."""

from __future__ import annotations

import numpy as np
import pandas as pd
from bokeh.models import Select

from ddpviz.events import RECORD, Batch, Cause, Failure, Module
from ddpviz.export.page import page
from ddpviz.recording import UNNUMBERED, Recording
from ddpviz.views.selector import choose_steps, selectable
from ddpviz.views.source import read_run
from tests.views.frames import Framed
from tests.views.samples import MS, ZERO_NS, construct, record, sample_recording


def rewrapped() -> Recording:
    """A construction 200 ms before the first of three steps, another 3 s after them."""
    recording = sample_recording(steps=3)
    construct(recording, -200, -150)
    construct(recording, 3000, 3017, module=1, late_ms=2)
    for rank in recording.ranks:
        wider = Module(1, "Wider", (), (), ())
        recording.append(Batch(rank, UNNUMBERED, np.zeros(0, RECORD), (wider,)))
        # A barrier of the user's own, between the two: outside of steps, in no construction.
        at = ZERO_NS + 1000 * MS
        call = {"step": -1, "rank": rank, "cause": Cause.USER, "sequence": 9, "group": 0}
        recording.append(Batch(rank, UNNUMBERED, record(32, at, at, **call)))
    return recording


def fail(recording: Recording, ms: float, rank: int = 1) -> None:
    note = Failure(rank, -1, round(ZERO_NS + ms * MS), "ValueError: bad batch", "")
    recording.append(Batch(rank, UNNUMBERED, np.zeros(0, RECORD), (note,)))


def shown(recording: Recording) -> tuple[str, dict[str, str]]:
    """The step that opens, and the selector's texts."""
    select = selectable(recording).layout.select_one({"type": Select})
    return select.value, dict(select.options)


def test_each_construction_is_an_entry_that_lasts_as_long_as_its_constructor() -> None:
    run = read_run(rewrapped())
    assert run.steps == [-1, -2, 0, 1, 2]
    first, second = (Framed(run.source(step)) for step in (-1, -2))
    assert first.title == "construction 1 of 2, ConvNet: 50 ms"
    assert second.title == "construction 2 of 2, Wider: 17 ms"
    assert first.end_ms == 50 and second.end_ms == 19  # rank 1 is 2 ms later
    assert set(first.spans["kind"]) == {"construction"}


def test_a_construction_has_its_own_collectives_and_no_others() -> None:
    run = read_run(rewrapped())
    for step, sequence in ((-1, 800), (-2, 4000)):
        source = run.source(step)
        assert set(source.collectives["sequence"]) == {sequence}
        marks = Framed(source).marks
        assert len(marks) == 2 and marks["head"].str.endswith("(verify)").all()


def test_the_selector_names_every_construction_and_the_page_is_written() -> None:
    recording = rewrapped()
    value, options = shown(recording)
    assert value == "2"
    assert list(options) == ["-1", "-2", "0", "1", "2"]
    assert options["-1"] == "construction 1 of 2, ConvNet"
    assert options["-2"] == "construction 2 of 2, Wider"
    assert "construction 2 of 2, Wider: 17 ms" in page(recording)


def test_a_single_construction_is_called_so() -> None:
    recording = sample_recording(steps=2)
    construct(recording, -200, -150)
    assert shown(recording)[1]["-1"] == "construction"


def test_many_constructions_leave_room_for_the_telling_steps() -> None:
    lengths = pd.Series({step: 100.0 + (step - 4) ** 2 for step in range(8)})
    recorded = [*range(-1, -101, -1), *range(8)]
    chosen = choose_steps(recorded, lengths, [1], {7: "newest"}, most=10)
    assert len(chosen) == 10 and list(chosen)[0] == -1
    assert set(chosen.values()) - {""} == {
        "newest", "first", "new bucket plan", "fastest", "median"
    }  # fmt: skip


def test_a_failure_between_steps_opens_the_step_before_it() -> None:
    recording = rewrapped()
    fail(recording, ms=195)  # step 1 ended 187 ms after the first began, step 2 begins at 200
    value, options = shown(recording)
    assert value == "1" and options["1"].endswith("failed")
    title = Framed(read_run(recording).source(1)).title
    assert title == "rank 1 failed after step 1: ValueError: bad batch"


def test_a_failure_after_a_construction_opens_that_one() -> None:
    recording = rewrapped()
    fail(recording, ms=3500)
    value, options = shown(recording)
    assert value == "-2" and options["-2"].endswith("failed")
    title = Framed(read_run(recording).source(-2)).title
    assert title == "rank 1 failed after construction 2 of 2, Wider: ValueError: bad batch"


def test_a_failure_outside_of_steps_without_any_construction_opens_a_step() -> None:
    recording = sample_recording(steps=2)
    fail(recording, ms=5000)
    assert shown(recording)[0] == "1"
