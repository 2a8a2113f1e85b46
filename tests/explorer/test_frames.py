"""A frame is a header for JSON and one buffer, and says all that the figure needs."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from bokeh.document import Document
from bokeh.models import ColumnDataSource

from ddpviz.explorer import frames
from ddpviz.following.follower import Follower
from ddpviz.views.live import LiveFigure, Picture
from ddpviz.views.live_views import VIEWS
from tests.explorer.material import Stream


@pytest.fixture(scope="module")
def drawn() -> dict[str, tuple[LiveFigure, Picture]]:
    stream = Stream()
    stream.steps(10)
    moment = Follower(stream.recording).moment(None, "", 1000)
    return {name: (view.draw(), view.picture(moment)) for name, view in VIEWS.items()}


def test_what_is_packed_comes_out_again(drawn: dict[str, tuple[LiveFigure, Picture]]) -> None:
    packed = frames.pack(drawn)
    views = json.loads(json.dumps(packed.views, allow_nan=False))
    for name, (_, picture) in drawn.items():
        found = frames.unpack(views[name], packed.buffer)
        assert set(found) == set(picture.sources)
        for source, columns in picture.sources.items():
            for column, values in columns.items():
                if isinstance(values, np.ndarray):
                    np.testing.assert_array_equal(found[source][column], values)
                else:
                    assert found[source][column] == values


def test_all_views_share_one_buffer_without_gaps(
    drawn: dict[str, tuple[LiveFigure, Picture]],
) -> None:
    packed = frames.pack(drawn)
    spans = sorted(
        tuple(value)
        for view in packed.views.values()
        for columns in view["sources"].values()
        for value in columns.values()
        if frames.is_packed(value)
    )
    end = 0
    for offset, count in spans:
        assert offset in (end, end - 0)
        end = offset + 8 * count
    assert end == len(packed.buffer)


def test_two_texts_are_not_taken_for_numbers() -> None:
    assert not frames.is_packed(["a", "b"])
    assert frames.is_packed([0, 2])


@pytest.mark.parametrize("name", VIEWS)
def test_a_figure_goes_into_a_document_and_takes_a_frame(
    name: str, drawn: dict[str, tuple[LiveFigure, Picture]]
) -> None:
    item = frames.figure_item(*drawn[name])
    told = json.loads(json.dumps(item, allow_nan=False))
    document = Document.from_json(told["item"]["doc"])
    view = frames.pack({name: drawn[name]}).views[name]
    assert view["structure"] == told["structure"]
    for id, properties in view["properties"].items():
        model: Any = document.get_model_by_id(id)
        assert model is not None
        for property in properties:
            assert hasattr(model, property), (model, property)
    for source, id in told["sources"].items():
        model = document.get_model_by_id(id)
        assert isinstance(model, ColumnDataSource)
        assert set(view["sources"][source]) == set(model.data)
    for theme in ("light", "dark"):
        for id, properties in told["theme"][theme]:
            model = document.get_model_by_id(id)
            assert model is not None
            assert all(hasattr(model, property) for property in properties)
    for id in told["parts"].values():
        assert document.get_model_by_id(id) is not None


def test_a_figure_can_be_asked_for_again_and_keeps_its_ids(
    drawn: dict[str, tuple[LiveFigure, Picture]],
) -> None:
    first, second = (frames.figure_item(*drawn["timeline"]) for _ in range(2))
    assert first["sources"] == second["sources"]
    assert first["item"]["root_id"] == second["item"]["root_id"]
