"""Pictures of live views, read as rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ddpviz.following.follower import Follower
from ddpviz.recording import Recording
from ddpviz.views.live import Picture
from ddpviz.views.live_views import VIEWS


def picture_of(
    recording: Recording, view: str, step: int | None = None, width_px: int = 1000
) -> Picture:
    """What a view shows of a step, by default of the newest."""
    follower = Follower(recording)
    try:
        return VIEWS[view].picture(follower.moment(step, "press Start to train", width_px))
    finally:
        follower.close()


def rows_of(picture: Picture, source: str, kind: str | None = None) -> list[dict[str, Any]]:
    """Rows of a source, of one kind."""
    columns = {
        name: values.tolist() if isinstance(values, np.ndarray) else values
        for name, values in picture.sources[source].items()
    }
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return [row for row in rows if kind is None or row["kind"] == kind]


def lane(picture: Picture, name: str) -> float:
    """Middle of the lane with that label."""
    found = [at for at, label in picture.y_labels or () if label == name]
    assert len(found) == 1, picture.y_labels
    return found[0]


def in_lane(picture: Picture, rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Rows whose bars touch the lane's middle, or end at it."""
    at = lane(picture, name)
    return [row for row in rows if row["top"] - 1e-9 <= at <= row["bottom"] + 1e-9]
