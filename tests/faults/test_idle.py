"""A rank that dies while nothing is asked of it: whatever is called next says so, and goes on."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import ddpviz
from ddpviz.demonstrations.stage import Stage
from ddpviz.engines import RankFailed, Session, guard
from ddpviz.engines import cluster as clusters
from ddpviz.events import Failure, Kind
from tests.faults.expect import base, kill_idle, whole, works_again
from tests.faults.workload import faulty
from tests.waiting import until

_SAID = "its process was killed by SIGKILL while nothing was asked of it"


def test_the_next_run_names_the_rank_and_one_call_goes_on(session: Session) -> None:
    session.load(faulty)
    first = base(session)
    session.run(4)
    kill_idle(session, 1)
    with pytest.raises(RankFailed) as caught:
        session.run(2)
    error = caught.value
    assert (error.rank, error.step, error.doing, error.reason) == (1, -1, "", _SAID)
    assert str(error).startswith(f"rank 1 failed: {_SAID}; recorded up to then: ")
    assert session.failure is error
    for recording in (session.recording, ddpviz.load(session.directory)):
        note = recording.notes(Failure)[-1]
        assert (note.rank, note.step, note.message) == (1, -1, _SAID)
        assert len(recording.records(kinds=Kind.FAILED, ranks=1)) == len(
            recording.notes(Failure, rank=1)
        )
    for rank in (0, 1):
        whole(session, rank, first, first + 4)
    before = len(session.recording)
    session.recording.merge(session.directory)
    assert len(session.recording) == before  # the failure is not there twice
    works_again(session)


def train_in_background(session: Session) -> None:
    session.start()
    until(lambda: session.failure is not None, seconds=30)
    session.stop()


@pytest.mark.parametrize(
    "act",
    [
        lambda session: session.configure(bucket_cap_mb=2),
        lambda session: session.load(faulty),
        lambda session: session.checksums(),
        lambda session: train_in_background(session),
    ],
    ids=["configure", "load", "checksums", "stop"],
)
def test_every_other_call_names_it_too(session: Session, act: Callable[[Session], object]) -> None:
    session.load(faulty).run(1)
    kill_idle(session, 0)
    with pytest.raises(RankFailed, match=f"rank 0 failed: {_SAID}"):
        act(session)
    session.restart().load(faulty).run(1)
    assert session.failure is None


def test_restart_alone_brings_a_working_session_and_says_what_it_found(
    session: Session, capfd: pytest.CaptureFixture[str]
) -> None:
    session.load(faulty)
    first = base(session)
    session.run(4)
    kill_idle(session, 1)
    works_again(session)
    assert f"ddpviz: rank 1 failed: {_SAID}\n" in capfd.readouterr().err
    for rank in (0, 1):
        whole(session, rank, first, first + 7)


def test_all_ranks_may_die(session: Session) -> None:
    session.load(faulty).run(1)
    kill_idle(session, 0, 1)
    with pytest.raises(RankFailed) as caught:
        session.run(1)
    assert set(caught.value.others.values()) == {"its process was killed by SIGKILL"}
    works_again(session)
    kill_idle(session, 0, 1)
    works_again(session)


def test_a_run_right_after_the_kill_fails_as_clearly(session: Session) -> None:
    session.load(faulty).run(1)
    os.kill(session.pids[1], signal.SIGKILL)
    with pytest.raises(RankFailed, match="rank 1 failed.* its process was killed by SIGKILL"):
        session.run(1)
    works_again(session)


def test_close_says_it_raises_nothing_and_leaves_whole_files(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    session = Session(engines=2, directory=tmp_path / "a")
    session.load(faulty).run(4)
    pids = session.pids
    kill_idle(session, 1)
    session.close()
    assert f"ddpviz: rank 1 failed: {_SAID}\n" in capfd.readouterr().err
    assert "closed" in repr(session)
    recording = ddpviz.load(tmp_path / "a")
    assert recording.remarks == () and not list((tmp_path / "a").glob("*.ring"))
    assert recording.last_step == 3 and len(recording.notes(Failure)) == 1
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids.values())


def test_a_stopped_engine_that_its_cluster_gave_up_is_ended_and_named(tmp_path: Path) -> None:
    cluster, profile = clusters._local_cluster()
    cluster.controller_args = [
        "--HeartMonitor.period=200",
        "--HeartMonitor.max_heartmonitor_misses=2",
    ]
    cluster.n = 2
    client = cluster.start_and_connect_sync()
    try:
        client.wait_for_engines(2, timeout=60)
        with Session(engines=2, cluster=client, directory=tmp_path / "a") as session:
            session.load(faulty).run(4)
            pid = session.pids[1]
            os.kill(pid, signal.SIGSTOP)  # a debugger, a machine that sleeps
            until(lambda: len(client.ids) < 2)
            with pytest.raises(RankFailed, match="rank 1 failed: its engine lost the connection"):
                session.run(1)
            assert not guard.alive(pid, guard.start_ticks(pid))
            whole(session, 1, 0, 4)
            works_again(session)
    finally:
        client.close()
        cluster.stop_cluster_sync()
        shutil.rmtree(profile)


def test_a_rank_that_is_killed_between_two_parts_of_a_demonstration_was_not_idle(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = Stage.train

    def killed_before(stage: Stage, steps: int) -> None:
        kill_idle(session, 1)
        train(stage, steps)

    monkeypatch.setattr(Stage, "train", killed_before)
    with pytest.raises(RankFailed, match="rank 1 failed.* its process was killed by SIGKILL") as it:
        session.demonstrate("one-bucket")
    assert "nothing was asked" not in str(it.value)
    monkeypatch.undo()
    works_again(session)
    kill_idle(session, 1)  # before any part of it, there was nothing to do
    with pytest.raises(RankFailed, match=_SAID):
        session.demonstrate("one-bucket")
    session.restart()
    found = session.demonstrate("straggler")  # its step is its own, and nobody failed in it
    assert found.view == "timeline" and "failed" not in found.finding
    session.load(faulty).run(1)
