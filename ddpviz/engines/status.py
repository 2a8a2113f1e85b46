"""What a session is doing, told to whoever wants to know, without asking a rank."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ddpviz.engines import guard
from ddpviz.engines.errors import RankFailed
from ddpviz.engines.ranks import this_host

if TYPE_CHECKING:
    from ddpviz.engines.crew import Crew

_HOST = this_host()


@dataclasses.dataclass(frozen=True)
class RankStatus:
    """``state``: idle, stepping, in a cell, dead, or as the session's status. ``device``: as torch
    names it on that rank. ``pid``: in the process table of ``hostname``."""

    rank: int
    pid: int
    state: str
    device: str
    hostname: str


@dataclasses.dataclass(frozen=True)
class SessionStatus:
    """``status``: starting, idle, training, loading, waiting (for code of the user's on the
    ranks), demonstrating, comparing, restarting, failed or closed.

    ``reason``: why, in one sentence, "" where there is nothing to say. ``workload``: its name, ""
    where none is loaded; ``step``: steps taken since it was loaded. ``failure``: until a restart.
    ``configured``: another number whenever the settings are others.
    """

    id: str
    status: str
    reason: str
    workload: str
    backend: str
    world_size: int
    step: int
    ranks: tuple[RankStatus, ...]
    failure: RankFailed | None
    configured: int = 0

    @property
    def name(self) -> str:
        """What to call the session."""
        return self.workload or self.id


class Changes:
    """Counts how often what it is shown is another object, or another number. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: tuple[object, int] = (None, 0)
        self._count = 0

    def count(self, settings: object, number: int) -> int:
        """How often up to now, this time included."""
        with self._lock:
            if settings is not self._last[0] or number != self._last[1]:
                self._last = settings, number
                self._count += 1
            return self._count


def gone(ranks: tuple[RankStatus, ...], world_size: int) -> str:
    """That processes have ended while nothing was asked of them, or that there are none, in one
    sentence; "" for not."""
    if len(ranks) < world_size:
        return "there are no ranks, as the last restart did not bring them"
    dead = [str(one.rank) for one in ranks if one.state == "dead"]
    if not dead:
        return ""
    who = f"rank {dead[0]}" if len(dead) == 1 else f"ranks {', '.join(dead)}"
    process = "its process has" if len(dead) == 1 else "their processes have"
    return f"{who} died: {process} ended while nothing was asked of them"


class Listeners:
    """Who wants to be told of changes; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []

    def add(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Returns what ends it; twice is fine."""
        listener = [callback]  # the same callback may be there twice

        def told() -> None:
            listener[0]()

        with self._lock:
            self._callbacks.append(told)

        def remove() -> None:
            with self._lock:
                if told in self._callbacks:
                    self._callbacks.remove(told)

        return remove

    def any(self) -> bool:
        """Whether somebody listens."""
        return bool(self._callbacks)

    def tell(self) -> None:
        """Call everybody; what one of them raises is their own affair."""
        with self._lock:
            callbacks = list(self._callbacks)
        for callback in callbacks:
            try:
                callback()
            except Exception:
                pass


def of_ranks(crew: Crew | None, doing: str, in_cells: set[int]) -> tuple[RankStatus, ...]:
    """Every rank. ``doing``: what all of them do that live; ``in_cells``: those that run code of
    the user's. Looks at this machine's process table, microseconds a rank."""
    if crew is None:
        return ()
    failed = -1 if crew.failure is None else crew.failure.rank
    devices = {one.rank: one.device for one in crew.placements}
    found = []
    for member in list(crew.members):
        info = member.info
        state = "in a cell" if member.rank in in_cells else doing
        gone = info.host == _HOST and not guard.alive(info.pid, info.ticks)
        if gone or member.rank == failed:
            state = "dead"
        host = info.host.partition("/")[0]
        found.append(RankStatus(member.rank, info.pid, state, devices.get(member.rank, ""), host))
    return tuple(found)
