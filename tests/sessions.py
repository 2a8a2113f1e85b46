"""One session of real engines for many tests: its engines take seconds to start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ddpviz.engines import RankFailed, Session, SessionError


class Shared:
    """A session that is made when it is first asked for, and again where a test broke it.

    ``given``: what Session takes; each gets a directory of its own in ``folder``.
    """

    def __init__(self, folder: Path, **given: Any) -> None:
        self._folder = folder
        self._given = given
        self._made = 0
        self._session: Session | None = None

    def working(self) -> Session:
        """It, with nothing on and no failure. What is loaded is the last test's."""
        if self._session is None or not _brought_back(self._session):
            self.close()
            self._made += 1
            self._session = Session(directory=self._folder / str(self._made), **self._given)
        return self._session

    def close(self) -> None:
        if self._session is not None:
            self._session.close()


def _brought_back(session: Session) -> bool:
    """Whether it works, after a restart where it needs one."""
    try:
        session.stop()
    except RankFailed:
        pass
    except Exception:  # it is closed, or broke in another way
        return False
    if session.failure is None:
        return session.status().status == "idle"
    try:
        session.restart()
    except (RankFailed, SessionError):
        return False
    return True
