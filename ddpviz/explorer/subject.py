"""What a client looks at: a session or a recording, its follower, and its figures."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from typing import Any

from ddpviz.engines import Session
from ddpviz.explorer import frames, states
from ddpviz.following.auditing import Auditor
from ddpviz.following.follower import Follower
from ddpviz.recording import Recording
from ddpviz.views.flags import flagged
from ddpviz.views.live import LiveFigure, Moment, Picture, no_steps
from ddpviz.views.live_views import VIEWS

#: What differs whenever a picture may.
Version = tuple[Hashable, Hashable] | None
Pictures = dict[str, tuple[LiveFigure, Picture]]

_MOST_PICTURES = 64
_log = logging.getLogger("ddpviz")


class Subject:
    """Made by :func:`ddpviz.explorer.registry.announce`. Any thread may ask.

    The session is held weakly: a subject does not keep engines alive.
    """

    def __init__(self, id: str, about: Any) -> None:
        self.id = id
        self.is_recording = isinstance(about, Recording)
        self.recording: Recording = about if self.is_recording else about.recording
        self._about = weakref.ref(about)
        self._lock = threading.Lock()  # of the figures: Bokeh's models are of one thread at a time
        self._figures: dict[str, LiveFigure] = {}
        self._pictures: dict[tuple[str, int | None, int], tuple[Version, Picture]] = {}
        self._complained: set[str] = set()
        self.auditor = Auditor(self.recording)
        self._follower: Follower | None = None
        self._following = threading.Lock()
        self._stop_listening: Callable[[], None] | None = None
        self.told: tuple[Version, float, str] = (None, 0.0, "")  # of which, when, its finding

    def is_about(self, other: Any) -> bool:
        """Whether this is that session or recording."""
        return self._about() is other

    @property
    def session(self) -> Session | None:
        """The session; None for a recording, and for a session that is gone."""
        return None if self.is_recording else self._about()

    @property
    def closed(self) -> bool:
        """Whether its session is closed or gone."""
        return not self.is_recording and states.status_of(self.session) == "closed"

    @property
    def follower(self) -> Follower:
        """Follows its recording from the first time that somebody looks."""
        with self._following:
            if self._follower is None:
                self._follower = Follower(self.recording)
                weakref.finalize(self, self._follower.close).atexit = False
            return self._follower

    def attend(self, changed: Callable[[], None] | None) -> None:
        """Be told of the session's changes as long as somebody looks, None for nobody.

        A session that is looked at sends its records ten times a second, else four times.
        """
        session = self.session
        if changed is None and self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None
        elif changed is not None and self._stop_listening is None and session is not None:
            self._stop_listening = session.on_change(changed)

    def state(self) -> dict[str, Any]:
        """The SessionState."""
        return states.session_state(self)

    def version_of(self, step: int | None) -> Version:
        """Differs whenever this step may look different; without a step, what to do instead."""
        return states.hint_of(self) if step is None else step, self.follower.version_of(step)

    def shown(self, step: int | None) -> int | None:
        """The step to show where ``step`` None stands for the newest."""
        return self.follower.newest() if step is None else step

    def versions(self, views: list[str], step: int | None) -> dict[str, Version]:
        """Per view what differs whenever its picture may."""
        shown = self.shown(step)
        number, history = self.follower.history()
        changes = tuple(change for change in history.changes if change.step == shown)
        flags = flagged(self.auditor.known, shown)
        found: dict[str, Version] = {}
        for view in views:
            basis = VIEWS[view].basis
            if not VIEWS[view].of_step:
                found[view] = None, number
            elif basis is None:
                found[view] = self.version_of(shown), (*changes, *flags)
            else:
                of = basis(self.follower.moment(shown, "", 0).source)
                found[view] = states.hint_of(self) if shown is None else "", of
        return found

    def pictures(
        self, views: list[str], step: int | None, width_px: int | Callable[[str], int]
    ) -> Pictures:
        """(figure, picture) of each view; drawn once for all clients until something changes.

        ``width_px``: of all figures, or of each by its view.
        """
        moment: Moment | None = None
        found: Pictures = {}
        shown = self.shown(step)
        with self._lock:
            for view, version in self.versions(views, shown).items():
                by_step = VIEWS[view].of_step and VIEWS[view].basis is None
                width = width_px(view) if callable(width_px) else width_px
                key = (view, shown if by_step else None, width)
                known = self._pictures.get(key)
                if known is None or known[0] != version:
                    if moment is None:
                        hint = states.hint_of(self) or "nothing recorded yet"
                        moment = dataclasses.replace(
                            self.follower.moment(shown, hint, 0), findings=self.auditor.known
                        )
                    if len(self._pictures) > _MOST_PICTURES:
                        self._pictures.clear()
                    here = dataclasses.replace(moment, width_px=width)
                    known = version, self._picture(view, here)
                    self._pictures[key] = known
                    if view == "timeline" and step is None:
                        self.told = self.version_of(shown), time.monotonic(), known[1].title
                found[view] = self._figure(view), known[1]
        return found

    def figure_item(self, view: str, step: int | None, width_px: int) -> dict[str, Any]:
        """The answer to "figure"."""
        drawn, picture = self.pictures([view], step, width_px)[view]
        with self._lock:
            return frames.figure_item(drawn, picture)

    def _picture(self, view: str, moment: Moment) -> Picture:
        try:
            return VIEWS[view].picture(moment)
        except Exception as error:
            # One step that cannot be drawn must not end the others.
            if view not in self._complained:
                self._complained.add(view)
                _log.exception("the view %s could not be drawn; said once", view)
            nothing = dataclasses.replace(moment, step=None, history=no_steps(moment.history))
            empty = VIEWS[view].picture(nothing)
            what = " ".join(f"{type(error).__name__}: {error}".split())
            return dataclasses.replace(empty, title=f"step {moment.step} cannot be drawn: {what}")

    def _figure(self, view: str) -> LiveFigure:
        if view not in self._figures:
            self._figures[view] = VIEWS[view].draw()
        return self._figures[view]
