"""Live views: pictures of a moment as data, within what a browser draws, in both themes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from ddpviz.analysis import buffers, steps
from ddpviz.explorer.follow import Follower
from ddpviz.recording import Recording
from ddpviz.views.live import HISTORY_STEPS, Change, History, Moment, Picture, properties, show
from ddpviz.views.live_still import html, svg
from ddpviz.views.live_views import VIEWS
from ddpviz.views.palette import DARK, LIGHT
from ddpviz.views.rows import MOST_GLYPHS
from tests.explorer.material import Stream
from tests.views.samples import sample_recording

HOSTILE = "<img src=x onerror=alert(1)>$$x^2$$"


def moment_of(recording: Any, step: int | None = None) -> Moment:
    return Follower(recording).moment(step, "press Start to train", 1000)


def glyphs(picture: Picture) -> int:
    return sum(len(next(iter(columns.values()))) for columns in picture.sources.values())


@pytest.fixture(scope="module")
def moment() -> Moment:
    stream = Stream()
    stream.steps(40)
    return moment_of(stream.recording)


@pytest.mark.parametrize("name", VIEWS)
def test_a_picture_has_every_source_and_column_of_its_figure(name: str, moment: Moment) -> None:
    drawn, picture = VIEWS[name].draw(), VIEWS[name].picture(moment)
    assert set(picture.sources) == set(drawn.sources)
    for source, columns in picture.sources.items():
        read = set(drawn.sources[source].data)
        assert read <= set(columns) | {"derived", "rank"}, source
        lengths = {len(column) for column in columns.values()}
        assert len(lengths) == 1, source
        for column in columns.values():
            if isinstance(column, np.ndarray):
                assert column.dtype == np.float64
            else:
                assert all(isinstance(text, str) for text in column)


@pytest.mark.parametrize("name", VIEWS)
def test_a_figure_shows_a_picture_and_both_themes(name: str, moment: Moment) -> None:
    drawn, picture = VIEWS[name].draw(), VIEWS[name].picture(moment)
    show(drawn, picture, DARK)
    assert drawn.plot.title.text == picture.title
    assert drawn.plot.title.text_color == DARK.text
    light, dark = drawn.themes["light"], drawn.themes["dark"]
    assert [(model.id, set(values)) for model, values in light] == [
        (model.id, set(values)) for model, values in dark
    ]
    axes = {model.id: values for model, values in dark}
    for axis in (*drawn.plot.xaxis, *drawn.plot.yaxis):
        assert axes[axis.id]["major_label_text_color"] == DARK.text
    assert LIGHT.text != DARK.text


@pytest.mark.parametrize("name", VIEWS)
def test_nothing_recorded_says_what_to_do(name: str) -> None:
    empty = Follower(Recording()).moment(None, "press", 0)
    assert empty.step is None
    picture = VIEWS[name].picture(empty)
    assert picture.title == "press"
    show(VIEWS[name].draw(), picture)


def test_titles_are_findings(moment: Moment) -> None:
    titles = {name: view.picture(moment).title for name, view in VIEWS.items()}
    assert titles["timeline"].startswith("rank 1 waited 20 ms for rank 0")
    assert titles["steps"].startswith("step 42: ")
    assert "exposed communication" in titles["steps"]
    assert titles["plan"].startswith("ConvNet: plan 1 has 3 buckets")
    assert "sent 256 B of buffers in 1 broadcast of float32" in titles["buffers"]
    assert "of communication hidden behind backward in the last 43 steps" in titles["overlap"]


def test_bars_are_the_tables_means(moment: Moment) -> None:
    table = moment.history.steps
    bars = VIEWS["steps"].picture(moment).sources["bars"]
    kinds = np.array(bars["kind"])
    exposed = bars["top"][kinds == "exposed"] - bars["bottom"][kinds == "exposed"]
    means = table.groupby("step")["exposed_communication_ms"].mean().to_numpy()
    np.testing.assert_allclose(exposed, means)
    np.testing.assert_allclose(
        bars["top"][kinds == "exposed"], table.groupby("step")["step_ms"].mean().to_numpy()
    )


def test_views_over_steps_show_the_last_200() -> None:
    stream = Stream()
    last = stream.steps(3 * HISTORY_STEPS)
    moment = moment_of(stream.recording)
    for name in ("steps", "overlap", "buffers"):
        picture = VIEWS[name].picture(moment)
        shown = np.unique(picture.sources["bars"]["step"])
        assert shown.tolist() == list(range(last - HISTORY_STEPS + 1, last + 1)), name
        assert glyphs(picture) <= MOST_GLYPHS


def test_a_huge_model_stays_within_what_a_browser_draws() -> None:
    recording = sample_recording(steps=3, buckets=60, parameters_per_bucket=100)
    moment = moment_of(recording)
    for name, view in VIEWS.items():
        assert glyphs(view.picture(moment)) <= MOST_GLYPHS, name


@pytest.mark.parametrize("name", VIEWS)
def test_names_are_neither_typeset_nor_markup(name: str) -> None:
    recording = sample_recording(steps=3, name=HOSTILE, parameter=HOSTILE + "{index}")
    moment = moment_of(recording)
    drawn, picture = VIEWS[name].draw(), VIEWS[name].picture(moment)
    for _, values in properties(drawn, picture):
        for value in values.values():
            texts = value.values() if isinstance(value, dict) else [value]
            assert not any("$$" in str(text) for text in texts)
    if "labels" in picture.sources:
        assert not any("$$" in text for text in picture.sources["labels"]["text"])
    for tool in drawn.plot.hover:
        assert "{safe}" not in tool.tooltips


def test_a_still_is_svg_without_script_and_escapes_names() -> None:
    recording = sample_recording(steps=3, name=HOSTILE, parameter=HOSTILE + "{index}")
    picture = VIEWS["timeline"].picture(moment_of(recording))
    drawn = svg(picture)
    assert "<img" not in drawn and "<script" not in drawn
    spans = len(picture.sources["spans"]["left"])
    assert drawn.count("<rect") >= spans
    assert html(picture).startswith("<img alt=")
    assert "onerror" not in html(picture)


def test_a_change_of_configuration_is_marked(moment: Moment) -> None:
    changed = History(
        moment.history.steps,
        moment.history.buffers,
        moment.history.broadcasts,
        (Change(42, "bucket_cap_mb=1"),),
    )
    now = Moment(moment.source, 42, changed)
    for name in ("steps", "overlap", "buffers"):
        marks = VIEWS[name].picture(now).sources["marks"]
        assert marks["x"].tolist() == [41.5]
        assert marks["time"] == ["bucket_cap_mb=1"]
    label = VIEWS["timeline"].picture(now).x_label
    assert label is not None and "configured before this step: bucket_cap_mb=1" in label


def test_an_outlier_is_cut_and_said_so() -> None:
    stream = Stream()
    stream.steps(20)
    table = steps(stream.recording)
    table.loc[table["step"] == 0, "step_ms"] = 10_000.0
    moment = moment_of(stream.recording)
    history = History(table, buffers(stream.recording), moment.history.broadcasts)
    picture = VIEWS["steps"].picture(Moment(moment.source, 22, history))
    assert picture.y[1] < 1_000
    assert picture.y_label == "ms, mean of ranks (1 longer: cut)"


def test_unknown_communication_is_drawn_as_not_known(moment: Moment) -> None:
    table = moment.history.steps.assign(
        exposed_communication_ms=np.nan, hidden_communication_ms=np.nan
    )
    history = History(table, moment.history.buffers, moment.history.broadcasts)
    now = Moment(moment.source, 42, history)
    assert set(VIEWS["steps"].picture(now).sources["bars"]["kind"]) == {"unsplit"}
    assert "not known" in VIEWS["steps"].picture(now).title
    assert "not known" in VIEWS["overlap"].picture(now).title
    json.dumps(VIEWS["steps"].picture(now).title)
