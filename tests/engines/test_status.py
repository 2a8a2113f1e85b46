"""What a session says of itself while real ranks start, train, fail and end."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from ddpviz.engines import RankFailed, Session, guard, registry
from ddpviz.events import Batch
from tests.waiting import until


def test_the_status_follows_what_is_done(session: Session) -> None:
    seen: list[str] = []
    end = session.on_change(lambda: seen.append(session.status().status))
    session.load("mlp", batch_size=4)
    session.run(3)
    status = session.status()
    assert (status.id, status.status, status.workload) == (session.id, "idle", "mlp")
    assert (status.backend, status.world_size, status.step) == ("gloo", 2, 3)
    assert [(one.rank, one.pid) for one in status.ranks] == [*session.pids.items()]
    assert {one.state for one in status.ranks} == {"idle"} and status.failure is None
    session.start()
    assert session.status().status == "training"
    assert {one.state for one in session.status().ranks} == {"stepping"}
    until(lambda: session.status().step > 3, seconds=20)
    session.configure(batch_size=8)
    session.stop()
    assert session.status().status == "idle"
    words = [word for word, before in zip(seen, ["", *seen], strict=False) if word != before]
    assert words == [
        "loading",
        "idle",
        "training",
        "idle",
        "training",
        "loading",
        "training",
        "idle",
    ]
    end()
    count = len(seen)
    session.run(1)
    assert len(seen) == count


def test_a_failure_is_told_with_its_rank_and_reason(session: Session) -> None:
    session.load("mlp").start()
    told = threading.Event()
    end = session.on_change(lambda: told.set() if session.failure is not None else None)
    os.kill(session.pids[1], signal.SIGKILL)
    assert told.wait(10)
    end()
    status = session.status()
    assert status.status == "failed" and "killed by SIGKILL" in status.reason
    assert status.failure is session.failure and status.ranks[1].state == "dead"
    predicted = session.predict(bucket_cap_mb=1)
    assert predicted.refused is not None and "restart the session first" in predicted.refused
    with pytest.raises(RankFailed):
        session.stop()
    seen: list[str] = []
    end = session.on_change(lambda: seen.append(session.status().status))
    session.restart()
    end()
    assert seen[0] == "restarting" and seen[-1] == "idle"


def test_ranks_that_died_while_idle_are_told_at_once(session: Session) -> None:
    session.load("mlp").run(1)
    for pid in session.pids.values():
        os.kill(pid, signal.SIGKILL)
    until(lambda: all(one.state == "dead" for one in session.status().ranks))
    status = session.status()
    assert status.status == "failed" and status.reason.startswith("ranks 0, 1 died: ")
    assert [one.state for one in status.ranks] == ["dead", "dead"]
    session.restart()
    assert session.status().status == "idle"


def test_asking_costs_less_than_a_millisecond_and_waits_for_nothing(session: Session) -> None:
    session.load("mlp").start()
    took = []
    for _ in range(200):
        begin = time.thread_time()
        session.status()
        took.append(time.thread_time() - begin)
    session.stop()
    assert np.median(took) < 1e-3


def test_records_leave_more_often_while_somebody_watches(session: Session) -> None:
    """Of steps that take 30 ms each, so that it is the flush that decides."""
    session.load("mlp", delay_ms={0: 30, 1: 30}).run(2)

    def batches() -> int:
        heard: list[Batch] = []
        end = session.recording.subscribe(heard.append)
        begin = time.monotonic()
        session.run(60)
        end()
        return round(len([one for one in heard if one.rank == 0]) / (time.monotonic() - begin))

    alone = batches()
    end = session.on_change(lambda: None)
    watched = batches()
    end()
    assert watched > 1.4 * alone


def test_a_session_is_registered_with_the_ranks_that_it_has(session: Session) -> None:
    def mine() -> registry.Registered:
        (found,) = [one for one in registry.read() if one.session == session.id]
        return found

    found = mine()
    assert found.kernel_pid == os.getpid()
    assert {one.rank: one.pid for one in found.ranks} == session.pids
    assert all(guard.alive(one.pid, one.ticks) for one in (*found.ranks, *found.launchers))
    assert len(found.launchers) >= 3  # the engines' and the controller's
    session.restart()
    again = mine()
    assert {one.rank: one.pid for one in again.ranks} == session.pids
    assert not {one.pid for one in again.ranks} & {one.pid for one in found.ranks}


@pytest.mark.parametrize("engines", [1, 3, 4])
def test_any_number_of_ranks_trains_fails_and_comes_back(tmp_path: Path, engines: int) -> None:
    with Session(engines=engines, directory=tmp_path / "a") as session:
        session.load("convnet", bucket_cap_mb=1, batch_size=2, delay_ms={engines - 1: 5}).run(3)
        assert len({*session.checksums().values()}) == 1
        assert session.configure(comm_hook="fp16", accumulation=2) == (
            "re-wrapped and from the next step"
        )
        session.run(2)
        printed: list[str] = []
        cell = session.execute("rank", None, lambda rank, stream, text: printed.append(text))
        assert cell.wait(30) and sorted(printed) == [f"{rank}\n" for rank in range(engines)]
        session.start()
        until(lambda: session.status().step > 5, seconds=20)
        os.kill(session.pids[engines - 1], signal.SIGKILL)
        until(lambda: session.failure is not None, seconds=20)
        assert session.failure is not None and session.failure.rank == engines - 1
        session.restart()
        session.run(2)
        assert len({*session.checksums().values()}) == 1
        assert len(session.status().ranks) == engines
