"""What of an explorer is seen where its browser part does not run: pictures without script."""

from __future__ import annotations

import time
from html import escape
from typing import Any

from IPython.display import publish_display_data

from ddpviz.explorer.subject import Subject
from ddpviz.views import live_still
from ddpviz.views.live import Picture

_WIDTH_PX = 1100
#: What comes next after these makes the picture of before an old one.
_MOVES = ("training", "waiting", "demonstrating", "comparing", "loading", "restarting", "starting")


class Stills:
    """Of one explorer. ``mark``: what they are known by in a page."""

    def __init__(self, subject: Subject, mark: str) -> None:
        self._subject = subject
        self._mark = mark
        self._left: list[str] = []  # display ids
        self._status = ""

    def html(self, kind: str = "bundled") -> str:
        """HTML without script: the state in one line, and the newest step."""
        state, picture = self._now()
        reason = f"<br>{escape(state['reason'])}" if state["reason"] else ""
        return (
            f'<div class="ddpviz-still ddpviz-{kind}" data-ddpviz-stills="{self._mark}">'
            f"<p>{escape(_line(state))}{reason}</p>{live_still.html(picture)}</div>"
        )

    def snapshot(self) -> dict[str, Any]:
        """What the model keeps until a browser has a better picture."""
        state, picture = self._now()
        state = {**state, "at": 1000 * time.time()}
        return {"snapshot": live_still.data_url(picture), "snapshot_state": state}

    def leave(self) -> None:
        """Leave one as an output of its own."""
        self._left.append(f"ddpviz-{self._mark}-{len(self._left)}")
        self._publish(self._left[-1:], update=False)

    def renew(self, status: str) -> None:
        """Show the newest state in those that were left, once it is one that stays for a while."""
        before, self._status = self._status, status
        if before in _MOVES and status not in _MOVES:
            self._publish(self._left, update=True)

    def _publish(self, ids: list[str], update: bool) -> None:
        if not ids:
            return
        # A viewer that shows this one need not show the same within the widget's output.
        rule = f".ddpviz-bundled[data-ddpviz-stills='{self._mark}'] {{ display: none }}"
        state, _ = self._now()
        data = {
            "text/html": f"<style>{rule}</style>{self.html('beside')}",
            "text/plain": _line(state),
        }
        for id in ids:
            publish_display_data(data, transient={"display_id": id}, update=update)

    def _now(self) -> tuple[dict[str, Any], Picture]:
        _, picture = self._subject.pictures(["timeline"], None, _WIDTH_PX)["timeline"]
        return self._subject.state(), picture


def _line(state: dict[str, Any]) -> str:
    parts = [state["name"], f"{state['world_size']} ranks", state["backend"], state["status"]]
    if state["step"] >= 0:
        parts.append(f"step {state['step']}")
    return " · ".join(str(part) for part in parts if part)
