"""Rows → figure: the sources hold exactly the rows; the selector holds every step it offers."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest
from bokeh.core.validation import check_integrity
from bokeh.models import ColumnDataSource, Plot, Select

from ddpviz import analysis
from ddpviz.events import RECORD, Batch, Failure
from ddpviz.export.page import page
from ddpviz.export.tables import state_line
from ddpviz.recording import Recording
from ddpviz.views.figure import plain, step_figure, themed, title_text
from ddpviz.views.palette import DARK, LIGHT, SPANS
from ddpviz.views.rows import build_rows
from ddpviz.views.selector import choose_steps, selectable
from ddpviz.views.source import read_run
from ddpviz.views.text import EXPOSED, HIDDEN
from ddpviz.views.timeline import timeline
from tests.views.samples import batches_of, sample_recording


def test_sources_hold_exactly_the_rows() -> None:
    source = read_run(sample_recording()).source(1)
    rows = build_rows(source)
    drawn = step_figure(rows)
    for name, table in rows.tables.items():
        shown = drawn.sources[name].data
        assert set(table) - set(shown) <= {"rank", "derived"}  # nothing reads them
        for column in set(table) & set(shown):
            np.testing.assert_array_equal(shown[column], table[column])
    hatched = [mark == "/" for mark in drawn.sources["spans"].data["hatch"]]
    assert hatched == rows.spans["derived"].astype(bool).tolist() and any(hatched)


def test_title_is_the_finding() -> None:
    recording = sample_recording()
    plot = timeline(recording, 2)
    assert isinstance(plot, Plot)
    assert plot.title.text == analysis.finding(recording, 2)


def test_every_step_is_selectable_and_the_newest_is_shown() -> None:
    selected = selectable(sample_recording(steps=4))
    assert selected.steps == [0, 1, 2, 3]
    select = selected.layout.select_one({"type": Select})
    assert select.value == "3"
    assert [value for value, _ in select.options] == ["0", "1", "2", "3"]
    (callback,) = select.js_property_callbacks["change:value"]
    assert set(callback.args["steps"]) == {"0", "1", "2", "3"}


def test_few_of_many_steps_are_chosen_by_what_they_tell() -> None:
    lengths = pd.Series({step: 100.0 + step % 7 for step in range(1000)})
    lengths[321], lengths[654] = 900.0, 1.0
    chosen = choose_steps(list(range(1000)), lengths, [1], {999: "newest"}, most=40)
    assert len(chosen) == 40
    assert list(chosen) == sorted(chosen)
    reasons = {why: step for step, why in chosen.items() if why}
    assert reasons["newest"] == 999
    assert reasons["first"] == 0
    assert reasons["new bucket plan"] == 1
    assert reasons["slowest"] == 321
    assert reasons["fastest"] == 654
    assert "median" in reasons


def test_fewer_places_than_telling_steps_keep_the_newest() -> None:
    lengths = pd.Series(dict.fromkeys(range(50), 1.0))
    assert choose_steps(list(range(50)), lengths, [], {49: "newest"}, most=1) == {49: "newest"}


def test_selector_says_how_many_steps_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddpviz.views.selector.MOST_STEPS", 5)
    selected = selectable(sample_recording(steps=9))
    assert len(selected.steps) == 5
    note = selected.layout.select_one({"name": "note"})
    assert note.text.startswith("5 of 9 steps are here")


def test_the_step_in_which_a_rank_failed_is_shown_first() -> None:
    recording = sample_recording(steps=4)
    failure = Failure(1, 2, 0, "RuntimeError: <b>no</b>", "")
    recording.append(Batch(1, 1, np.zeros(0, RECORD), (failure,)))
    selected = selectable(recording)
    select = selected.layout.select_one({"type": Select})
    assert select.value == "2"
    assert dict(select.options)["2"].endswith("failed")
    assert "rank 1 failed: RuntimeError: &lt;b&gt;no&lt;/b&gt;" in state_line(recording).html


def test_the_page_tells_what_hidden_and_exposed_mean_where_they_are_shown() -> None:
    text = page(sample_recording())
    for meaning in (HIDDEN, EXPOSED):
        assert f'title="{meaning}"' in text
        assert f": {meaning}" in text


class Counted(Recording):
    """Counts how often it is read."""

    reads = 0

    def records(self, *args: Any, **kwargs: Any) -> np.ndarray:
        self.reads += 1
        return super().records(*args, **kwargs)


def test_a_page_reads_the_recording_as_often_for_many_steps_as_for_few() -> None:
    reads = []
    for steps in (3, 30):
        recording = Counted()
        for batch in batches_of(sample_recording(steps=steps)):
            recording.append(batch)
        page(recording)
        reads.append(recording.reads)
    assert reads[0] == reads[1]


def test_both_themes_set_the_same_properties() -> None:
    source = read_run(sample_recording()).source(1)
    drawn = step_figure(build_rows(source))
    light, dark = themed(drawn, LIGHT), themed(drawn, DARK)
    assert [(m, list(v)) for m, v in light] == [(m, list(v)) for m, v in dark]
    assert set(SPANS) < set(drawn.glyphs)


def test_names_that_look_like_mathematics_are_drawn_as_they_are() -> None:
    assert plain("bucket 1") == "bucket 1"
    for text in ("$$x$$", r"\[x\]", r"\(x\)"):
        shown = plain(text)
        assert not isinstance(shown, str) and shown.text == text


def test_figure_is_valid_and_hover_escapes() -> None:
    plot = timeline(sample_recording(), 2)
    issues = check_integrity(plot.references())
    assert not issues.error and not issues.warning
    assert isinstance(plot, Plot)
    hover = next(tool for tool in plot.toolbar.tools if type(tool).__name__ == "HoverTool")
    assert "safe" not in hover.tooltips
    assert plot.select({"type": ColumnDataSource}) is not None


def test_errors_are_one_sentence() -> None:
    with pytest.raises(ValueError, match="the recording has no step yet"):
        timeline(Recording())
    with pytest.raises(ValueError, match="found the theme 'pink', expected one of"):
        timeline(sample_recording(), theme="pink")


def test_a_long_title_is_cut_to_one_line_that_fits() -> None:
    source = read_run(sample_recording()).source(1)
    rows = build_rows(dataclasses.replace(source, finding="rank 1 failed:\n" + "x" * 500))
    shown = title_text(rows)
    assert isinstance(shown, str)
    assert shown.startswith("rank 1 failed: x") and shown.endswith("…") and len(shown) == 140
