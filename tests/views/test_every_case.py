"""Every view draws every step of every real run, within what a browser draws."""

from __future__ import annotations

import numpy as np
import pytest

from ddpviz.following.follower import Follower
from ddpviz.recording import Recording
from ddpviz.views import buffers, construction, countdown, finalize, forward_graph, replicas
from ddpviz.views.live import show
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


@pytest.mark.parametrize("case", inside.CASES)
def test_a_legend_has_what_is_drawn_and_nothing_else(
    recorded: dict[str, Recording], case: str
) -> None:
    recording = recorded[case]
    follower = Follower(recording)
    for module in (buffers, construction, countdown, finalize, forward_graph, replicas):
        drawn = module.VIEW.draw()
        for step in range(recording.last_step + 1):
            picture = module.VIEW.picture(follower.moment(step, "press Start", 400))
            show(drawn, picture)
            entries = [item for item in drawn.plot.legend[0].items if item.visible]
            labels = {item.label.value for item in entries}
            assert len(labels) == len(entries)
            kinds = set(picture.sources["bars"]["kind"])
            wanted = {module._KINDS[kind].label for kind in kinds}
            always = {kind.label for kind in module._KINDS.values() if not kind.rare}
            lines = {"configured anew"} if len(picture.sources["marks"]["x"]) else set()
            if "order" in picture.sources and len(picture.sources["order"]["x"]):
                lines = {"from launch to launch"}
            assert labels == wanted | always | lines, (module.__name__, step)
            if not picture.empty and picture.x_until is not None:
                # No bar begins where the axis has no number.
                assert np.max(picture.sources["bars"]["left"], initial=0.0) <= picture.x_until
                assert drawn.plot.xaxis[0].bounds == (picture.x[0], picture.x_until)
    follower.close()
