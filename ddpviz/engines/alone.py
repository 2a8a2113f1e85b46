"""What has a session to itself: a demonstration or a comparison. What is said of it meanwhile."""

from __future__ import annotations

import threading

from ddpviz.engines.errors import SessionError


class Alone:
    """Made by the thread that runs it, which alone may use the session until it has ended.

    ``status``: the session's meanwhile; ``what``: "the demonstration 'drift'". ``progress``: how
    far it is. ``stopped``: somebody wants it to end.
    """

    def __init__(self, status: str, what: str) -> None:
        self.status, self.what = status, what
        self.progress = ""
        self.stopped = False
        self._thread = threading.get_ident()

    def check(self) -> None:
        """Raises SessionError for another thread, and where it was stopped."""
        self.check_thread()
        if self.stopped:
            raise self.ended()

    def check_thread(self) -> None:
        """Raises SessionError for another thread."""
        if threading.get_ident() != self._thread:
            raise SessionError(f"{self.what} runs: wait for it, or stop it")

    def ended(self) -> SessionError:
        """What its own thread is told where it was stopped."""
        return SessionError(f"{self.what} was stopped: nothing can be shown of it, run it again")

    def told(self, doing: str) -> str:
        """``doing``: what the session does for it, "" where there is nothing to say."""
        stops = "; it stops after what runs" if self.stopped else ""
        parts = "; ".join(filter(None, (self.progress, doing)))
        return f"{self.what} runs" + (f": {parts}" if parts else "") + stops
