"""Live views: pictures of a moment as data, within what a browser draws, in both themes."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ddpviz.analysis import buffers, steps
from ddpviz.following.follower import Follower
from ddpviz.following.whole import still
from ddpviz.recording import Recording
from ddpviz.views.figure import contents
from ddpviz.views.live import HISTORY_STEPS, Change, History, Moment, Picture, properties, show
from ddpviz.views.live_still import html, svg
from ddpviz.views.live_views import VIEWS
from ddpviz.views.palette import DARK, LIGHT
from ddpviz.views.rows import MOST_GLYPHS, build_rows
from ddpviz.views.source import read_run
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


def test_a_frame_and_the_page_have_the_same_rows(moment: Moment) -> None:
    """Both come from the same records by the same way, whichever of the recording is read."""
    stream = Stream()
    stream.steps(40)
    whole = read_run(stream.recording)
    for step in (0, 1, 2, 40):
        live = VIEWS["timeline"].picture(moment_of(stream.recording, step))
        page = contents(build_rows(whole.source(step)))
        for name, columns in page.items():
            assert set(live.sources[name]) - set(columns) <= {"bucket"}
            for column, values in columns.items():
                np.testing.assert_array_equal(live.sources[name][column], values)


def test_a_frame_of_a_step_makes_no_data_frame(
    moment: Moment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One costs more than all else of a frame: tables are numpy rows up to where a user asks."""
    made: list[str] = []
    for kind in (pd.DataFrame, pd.Series):
        whole = kind.__init__

        def counted(self: Any, *args: Any, whole: Any = whole, **kwargs: Any) -> None:
            made.append(type(self).__name__)
            whole(self, *args, **kwargs)

        monkeypatch.setattr(kind, "__init__", counted)
    assert len(steps(moment.source)) == 2 and made  # it does count
    made.clear()
    for name in ("timeline", "plan"):
        assert not VIEWS[name].picture(moment).empty
    assert made == []


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
    assert "% exposed (median of 43 steps: " in titles["steps"]
    assert titles["plan"].startswith("ConvNet: plan 1 has 3 buckets up to ")
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


@pytest.mark.parametrize("steps_recorded", [HISTORY_STEPS, 3 * HISTORY_STEPS + 7])
def test_what_stands_still_shows_every_step_of_a_long_run(steps_recorded: int) -> None:
    stream = Stream()
    last = stream.steps(steps_recorded)
    moment = still(stream.recording, None, "", 1000, VIEWS.values())
    table = moment.history.steps
    assert table["step"].nunique() == last + 1
    for name in ("steps", "overlap", "buffers"):
        picture = VIEWS[name].picture(moment)
        found = {key: picture.sources["bars"][key] for key in ("kind", "left", "right", "top")}
        bars = pd.DataFrame(found)
        if name == "buffers":
            bars = bars[bars["kind"] == "buffers"][lambda b: b["top"] < b["top"].max()]
        several = last + 1 > HISTORY_STEPS
        label = "step      (each bar is the mean of neighbouring steps)"
        assert picture.x_label == (label if several else "step"), name
        begins = np.unique(bars["left"])
        assert len(begins) <= HISTORY_STEPS and len(begins) > HISTORY_STEPS / 2, name
        # Nothing is left out: bars follow each other to the last step.
        ends = np.unique(bars["right"])
        np.testing.assert_allclose(begins[1:], ends[:-1] + 0.1)
        assert begins[0] == -0.45 and ends[-1] == last + 0.45
        if name == "steps":
            each = ends - begins + 0.1
            tops = bars.groupby("left")["top"].max().to_numpy()
            whole = table.groupby("step")["step_ms"].mean()
            assert (tops * each).sum() == pytest.approx(whole.sum())


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


def ends_px(picture: Picture, width_px: int, margin_px: float) -> list[float]:
    """Where the labels of a plan end, from the left edge of the figure."""
    labels = picture.sources["labels"]
    frame_px = width_px - margin_px
    return [
        margin_px + x / picture.x[1] * frame_px + 5.5 * len(text)
        for x, text in zip(labels["x"], labels["text"], strict=True)
    ]


@pytest.mark.parametrize("width_px", [360, 480, 640, 1100])
def test_texts_of_a_plan_end_inside_the_figure(moment: Moment, width_px: int) -> None:
    """What letters of 11 px take on average: 5.5 px, in Helvetica and in Arial."""
    picture = VIEWS["plan"].picture(dataclasses.replace(moment, width_px=width_px))
    assert picture.y_labels is not None
    margin_px = 5.5 * max(len(label) for _, label in picture.y_labels)
    assert margin_px < width_px / 2
    assert max(ends_px(picture, width_px, margin_px)) < width_px
    assert ("limit" in "".join(picture.sources["labels"]["text"])) == (width_px > 600)


def test_labels_of_a_narrow_timeline_leave_each_other_alone(moment: Moment) -> None:
    wide, narrow = (
        VIEWS["timeline"].picture(dataclasses.replace(moment, width_px=width_px))
        for width_px in (1100, 360)
    )
    texts = narrow.sources["labels"]["text"]
    assert set(texts) < set(wide.sources["labels"]["text"])
    assert texts[0] == wide.sources["labels"]["text"][0]  # the longest stays
    assert wide.x_label is not None and wide.x_label.startswith("ms since the step began")
    assert narrow.x_label is not None and narrow.x_label.startswith("ms      (step ")


def test_a_change_of_configuration_is_marked(moment: Moment) -> None:
    changed = History(
        moment.history.steps,
        moment.history.buffers,
        moment.history.sent,
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
    history = History(table, buffers(stream.recording), moment.history.sent)
    picture = VIEWS["steps"].picture(Moment(moment.source, 22, history))
    assert picture.y[1] < 1_000
    assert picture.x_label == "step      (1 higher bar cut)"


def test_unknown_communication_is_drawn_as_not_known(moment: Moment) -> None:
    table = moment.history.steps.assign(
        exposed_communication_ms=np.nan, hidden_communication_ms=np.nan
    )
    history = History(table, moment.history.buffers, moment.history.sent)
    now = Moment(moment.source, 42, history)
    assert set(VIEWS["steps"].picture(now).sources["bars"]["kind"]) == {"unsplit"}
    assert "not known" in VIEWS["steps"].picture(now).title
    assert "not known" in VIEWS["overlap"].picture(now).title
    json.dumps(VIEWS["steps"].picture(now).title)


def test_a_figure_that_is_fetched_while_nothing_moves_has_its_legend(moment: Moment) -> None:
    """The browser is told of the same data again, and notices no change."""
    drawn = VIEWS["timeline"].draw()
    show(drawn, VIEWS["timeline"].picture(moment))
    shown = {item.label.value for item in drawn.plot.legend[0].items if item.visible}
    assert {"forward", "backward", "bucket filling", "gradient ready", "optimizer"} <= shown
    assert "construction" not in shown
