"""What is sent at a moment: pictures of views → a header for JSON, and one buffer of float64.

Pure: no thread, no comm. A figure and its pictures share the ids of models, so a frame can say
what it sets on which.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import numpy as np
from bokeh.core.serialization import Serializer
from bokeh.embed import json_item

from ddpviz.printable import straight
from ddpviz.views.live import LiveFigure, Picture, properties, show

#: A figure of this build never needs to be fetched again: all that differs between moments is
#: told by properties and data.
STRUCTURE = 1


@dataclasses.dataclass(frozen=True)
class Packed:
    """``views``: the header's part about views; ``buffer``: float64, little endian."""

    views: dict[str, dict[str, Any]]
    buffer: bytes


def pack(pictures: dict[str, tuple[LiveFigure, Picture]]) -> Packed:
    """The updates of several views with one buffer."""
    parts: list[bytes] = []
    offset = 0
    views: dict[str, dict[str, Any]] = {}
    for name, (drawn, picture) in pictures.items():
        sources: dict[str, dict[str, Any]] = {}
        for source, columns in picture.sources.items():
            packed = sources[source] = {}
            for column, values in columns.items():
                if isinstance(values, np.ndarray):
                    data = np.ascontiguousarray(values, "<f8").tobytes()
                    packed[column] = [offset, len(values)]
                    parts.append(data)
                    offset += len(data)
                else:
                    packed[column] = [str(value) for value in values]
        pairs = properties(drawn, picture)
        views[name] = {
            "structure": STRUCTURE,
            "step": picture.step,
            "title": straight(picture.title),
            "facts": [straight(fact) for fact in picture.facts],
            "readings": [list(reading) for reading in picture.readings],
            "properties": merged(pairs),
            "sources": sources,
        }
    return Packed(views, b"".join(parts))


def unpack(view: dict[str, Any], buffer: bytes) -> dict[str, dict[str, Any]]:
    """Sources of one view of a frame, as the browser reads them."""
    found: dict[str, dict[str, Any]] = {}
    for source, columns in view["sources"].items():
        found[source] = {
            column: np.frombuffer(buffer, "<f8", value[1], value[0])
            if is_packed(value)
            else list(value)
            for column, value in columns.items()
        }
    return found


def is_packed(value: list[Any]) -> bool:
    """Whether a column is [offset in bytes, count] and not a list of text."""
    return len(value) == 2 and not isinstance(value[0], str)


def figure_item(drawn: LiveFigure, picture: Picture) -> dict[str, Any]:
    """The answer to "figure": Bokeh's own JSON of the figure as it is now, and both themes."""
    show(drawn, picture)
    plot = drawn.plot
    return {
        "bokeh": bokeh_version(),
        "item": json_item(plot),
        "theme": {
            name: [[model.id, encoded(values)] for model, values in pairs]
            for name, pairs in drawn.themes.items()
        },
        "sources": {name: source.id for name, source in drawn.sources.items()},
        "parts": {
            "plot": plot.id,
            "title": plot.title.id,
            "x_range": plot.x_range.id,
            "y_range": plot.y_range.id,
            "x_axis": plot.xaxis[0].id,
            "y_axis": plot.yaxis[0].id,
        },
        "structure": STRUCTURE,
    }


def merged(pairs: list[tuple[Any, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Properties by model id."""
    found: dict[str, dict[str, Any]] = {}
    for model, values in pairs:
        found.setdefault(model.id, {}).update(encoded(values))
    return found


def encoded(values: dict[str, Any]) -> dict[str, Any]:
    """Properties in Bokeh's own JSON, as a patch of the document in the browser takes them."""
    serializer = Serializer(deferred=False)
    return {name: serializer.encode(value) for name, value in values.items()}


def bokeh_version() -> str:
    """The installed Bokeh's version, which its BokehJS must have too."""
    return str(sys.modules["bokeh"].__version__)
