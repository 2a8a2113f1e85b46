"""A demonstration that runs on a session: what is said of it, and who may use the session then."""

from __future__ import annotations

import threading

from ddpviz.engines.errors import SessionError


class Demonstrating:
    """Made by the thread that runs it, which alone may use the session until it has ended.

    ``stopped``: somebody wants it to end.
    """

    def __init__(self, title: str) -> None:
        self.title = title
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
            raise SessionError(f"the demonstration {self.title!r} runs: wait for it, or stop it")

    def ended(self) -> SessionError:
        """What its own thread is told where it was stopped."""
        return SessionError(
            f"the demonstration {self.title!r} was stopped: nothing can be shown of it, "
            "run it again"
        )

    def told(self, doing: str) -> str:
        """``doing``: what the session does for it, "" where there is nothing to say."""
        stops = "; it stops after what runs" if self.stopped else ""
        return f"the demonstration {self.title!r} runs" + (f": {doing}" if doing else "") + stops
