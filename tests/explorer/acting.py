"""A session in a kernel of its own that is asked for acts: demonstrations, comparisons."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.explorer.conftest import connected, running_kernel
from tests.explorer.front import Front
from tests.waiting import until


@contextmanager
def front_of(code: str) -> Iterator[Front]:
    """A front end to a kernel that has run the code, which makes ``session``."""
    with running_kernel() as manager, connected(manager) as client:
        found = Front(client)
        found.execute(code, seconds=120)
        found.subshell = found.new_subshell()
        found.open()
        yield found
        found.execute("session.close()", seconds=60)


@contextmanager
def idle_afterwards(front: Front) -> Iterator[str]:
    """The session's id."""
    (state,) = front.request("sessions")
    yield str(state["session"])
    front.request("stop", session=state["session"])
    until_status(front, "idle")


def until_status(front: Front, status: str) -> dict[str, Any]:
    """Its state, once that is its status."""

    def found() -> dict[str, Any] | None:
        (state,) = front.request("sessions")
        return dict(state) if state["status"] == status else None

    return until(found, 60) or {}
