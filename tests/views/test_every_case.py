"""Every view draws every step of every real run, within what a browser draws."""

from __future__ import annotations

import pytest

from ddpviz.following.follower import Follower
from ddpviz.recording import Recording
from ddpviz.views.live_views import VIEWS
from ddpviz.views.rows import MOST_GLYPHS
from tests.analysis import inside


@pytest.mark.parametrize("case", inside.CASES)
def test_every_step_is_drawn_by_every_view(recorded: dict[str, Recording], case: str) -> None:
    recording = recorded[case]
    follower = Follower(recording)
    for step in (-1, *range(recording.last_step + 1)):
        moment = follower.moment(step, "press Start", 400)
        for name, view in VIEWS.items():
            picture = view.picture(moment)
            glyphs = sum(len(next(iter(c.values()))) for c in picture.sources.values())
            assert glyphs <= MOST_GLYPHS
            for told in (picture.title, *picture.facts):
                assert told and not {"nan", "unknown", "<NA>"} & set(told.split()), (name, step)
                assert "rank None" not in told
    follower.close()
