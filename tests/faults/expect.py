"""What the tests of faults do with a session, and what they expect of it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import ddpviz
from ddpviz.engines import RankFailed, Session, guard
from ddpviz.events import Kind
from tests.faults.workload import mark
from tests.waiting import until

#: The promise: a failure ends the call within this. A bound, not a measurement.
LIMIT_SECONDS = 10


def failing_run(session: Session, fault: Path, steps: int = 1_000_000) -> RankFailed:
    """Run until it fails; what it raised, and that it came in time after the fault.

    ``fault``: a file with the time of the fault, see :func:`workload.mark`.
    """
    with pytest.raises(RankFailed) as caught:
        session.run(steps)
    late_ns = time.time_ns() - int(fault.read_text())
    assert 0 < late_ns < LIMIT_SECONDS * 1e9
    assert session.failure is caught.value
    return caught.value


def when(condition: Callable[[], bool], action: Callable[[], None]) -> threading.Thread:
    """Do something in the middle of a run, as soon as what is seen allows it."""

    def wait() -> None:
        while not condition():
            time.sleep(0.005)
        action()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def strike(pid: int, number: int, fault: Path) -> None:
    """Send a signal, and mark when."""
    mark(str(fault))
    os.kill(pid, number)


def kill_idle(session: Session, *ranks: int) -> None:
    """Kill ranks between two calls, and wait until their processes are gone."""
    living = {pid: guard.start_ticks(pid) for pid in (session.pids[rank] for rank in ranks)}
    for pid in living:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not any(guard.alive(*process) for process in living.items()))


def base(session: Session) -> int:
    """The recording's number of the step 0 of what was just loaded."""
    return session.recording.last_step + 1


def whole(session: Session, rank: int, begin: int, end: int) -> None:
    """Every step from begin to end (not included) of this rank is in memory and on disk."""
    for where, recording in (
        ("memory", session.recording),
        ("disk", ddpviz.load(session.directory)),
    ):
        steps = recording.records(kinds=Kind.STEP, ranks=rank)["step"]
        assert sorted(set(range(begin, end)) - set(steps.tolist())) == [], where
        assert recording.missing == {}, where


def works_again(session: Session) -> None:
    session.restart()
    session.run(3)
    assert len(set(session.checksums().values())) == 1
