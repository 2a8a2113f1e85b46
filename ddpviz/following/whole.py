"""The history of a whole recording, for what stands still: the last steps are not enough there."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from ddpviz.following.changes import Changes
from ddpviz.following.follower import Follower
from ddpviz.following.tables import tables_of
from ddpviz.following.window import Window
from ddpviz.recording import Recording
from ddpviz.views.live import History, LiveView, Moment

#: Steps with fingerprints of what stands still: five lanes of so many cells are drawn at once.
_MOST_SAMPLED = 900


def whole_history(recording: Recording, last: int) -> History:
    """The tables of all steps that are in memory, up to ``last``."""
    found = tables_of(Window(recording, recording.records(), narrow=False)).within(0, last)
    return found.history(Changes().read(recording))


def still(
    recording: Recording, step: int | None, hint: str, width_px: int, views: Iterable[LiveView]
) -> Moment:
    """As :meth:`Follower.moment`, of all steps that every rank completed where one of these views
    draws them."""
    follower = Follower(recording)
    try:
        moment = follower.moment(step, hint, width_px)
        if any(view.over_steps for view in views):
            history = whole_history(recording, follower.newest_complete)
            moment = dataclasses.replace(moment, history=history)
    finally:
        follower.close()
    return dataclasses.replace(moment, sampled_steps=_MOST_SAMPLED)
