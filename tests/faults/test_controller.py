"""The cluster's controller, through which all messages go, is killed: said, and mended."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from ddpviz.engines import RankFailed, Session
from tests.faults.expect import failing_run, when, works_again
from tests.faults.workload import faulty, mark

_SAID = "its cluster's controller has ended: its process was killed by SIGKILL"


def controller() -> psutil.Process:
    (found,) = (
        child
        for child in psutil.Process().children()
        if "ipyparallel.controller" in child.cmdline()
    )
    return found


def test_killed_while_ranks_train(session: Session, tmp_path: Path) -> None:
    session.load(faulty)
    fault, steps = tmp_path / "fault", session.recording.last_step + 20

    def kill() -> None:
        mark(str(fault))
        controller().kill()

    waiter = when(lambda: session.recording.last_step > steps, kill)
    error = failing_run(session, fault)
    waiter.join()
    assert _SAID in error.reason and "was stopped" in error.reason
    works_again(session)


def test_killed_while_nothing_is_asked(session: Session) -> None:
    session.load(faulty).run(1)
    process = controller()
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(RankFailed, match=_SAID):
        session.run(1_000_000)  # its schedulers still live, so some steps may be taken
    works_again(session)


def test_killed_before_the_session_is_closed(tmp_path: Path) -> None:
    mine = {child.pid for child in psutil.Process().children()}
    session = Session(engines=2, directory=tmp_path / "a")
    session.load(faulty).run(2)
    pids = session.pids
    (process,) = (
        child
        for child in psutil.Process().children()
        if child.pid not in mine and "ipyparallel.controller" in child.cmdline()
    )
    schedulers = process.children(recursive=True)
    assert schedulers
    process.kill()
    session.close()
    assert not any(one.is_running() and one.status() != "zombie" for one in schedulers)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids.values())
