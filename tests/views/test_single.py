"""``recording.figure(view, step)``: each view of a real run as a figure of its own."""

from __future__ import annotations

import pytest

from ddpviz.recording import Recording
from ddpviz.views.live_views import VIEWS
from ddpviz.views.palette import DARK

CASE = "drifting"


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_a_figure_with_its_data(recorded: dict[str, Recording], view: str) -> None:
    figure = recorded[CASE].figure(view)
    assert figure.title.text
    sources = [renderer.data_source.data for renderer in figure.renderers]
    assert any(len(column) for source in sources for column in source.values())
    # The browser picks the colours when it lays the figure out.
    assert figure.js_property_callbacks["change:inner_width"]


def test_a_construction_is_a_step_of_its_own(recorded: dict[str, Recording]) -> None:
    recording = recorded[CASE]
    assert "construction" in recording.figure("construction", step=-1).title.text
    assert "construction" in recording.figure("timeline", step=-1).title.text


def test_a_theme_may_be_chosen(recorded: dict[str, Recording]) -> None:
    from ddpviz.export.single import single

    figure = single(recorded[CASE], "countdown", 1, theme=DARK.name)
    assert figure.title.text_color == DARK.text
    assert not figure.js_property_callbacks


def test_what_is_not_there_is_said(recorded: dict[str, Recording]) -> None:
    recording = recorded[CASE]
    with pytest.raises(ValueError, match="found the view 'bucket', expected one of timeline"):
        recording.figure("bucket")
    with pytest.raises(ValueError, match="found no step 99 in the recording, expected 0 to"):
        recording.figure("countdown", step=99)
    with pytest.raises(ValueError, match="nothing was recorded yet"):
        Recording().figure("countdown")
