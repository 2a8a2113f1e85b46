"""Clusters that are somebody else's: used, waited for with a limit, and left as they were."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ipyparallel
import psutil
import pytest

import ddpviz
from ddpviz.engines import RankFailed, Session, SessionError, crew, work
from ddpviz.engines import cluster as clusters
from ddpviz.events import Kind, Process
from tests.faults.workload import faulty
from tests.waiting import until


@pytest.fixture
def busy(others: clusters.Engines, tmp_path: Path) -> Iterator[int]:
    """An engine that is at something else until the test ends."""
    end, begun = tmp_path / "end", tmp_path / "begun"
    code = (
        "import pathlib, time\n"
        f"pathlib.Path({str(begun)!r}).touch()\n"
        f"while not pathlib.Path({str(end)!r}).exists(): time.sleep(0.05)"
    )
    result = others.client[1].execute(code, block=False)
    until(begun.exists)
    yield 1
    end.touch()
    result.wait(30)


def alive(engines: clusters.Engines) -> bool:
    pids = engines.client[:].apply_sync(os.getpid)
    return all(Path(f"/proc/{pid}").exists() for pid in pids) and len(pids) == 2


def test_a_cluster_or_client_passed_in_is_used_and_left_running(
    others: clusters.Engines, tmp_path: Path
) -> None:
    for number, given in enumerate((others.cluster, others.client)):
        with Session(engines=2, cluster=given, directory=tmp_path / str(number)) as session:
            session.load("mlp").run(2)
            assert session.recording.last_step == 1
            # Of this session only, though its engines had another one before.
            assert len(session.recording.records(kinds=Kind.STEP)) == 2 * 2
        assert len(ddpviz.load(tmp_path / str(number))) == len(session.recording)
    assert sorted(others.client.ids) == [0, 1]
    assert alive(others)
    # Nothing stays behind in an engine that could bind a later group to this machine.
    left = others.client[:].apply_sync(os.getenv, "GLOO_SOCKET_IFNAME")
    assert left == [os.environ.get("GLOO_SOCKET_IFNAME")] * 2


@pytest.mark.parametrize("given", ["cluster", "client"])
def test_a_cluster_that_is_too_small_is_refused_and_nothing_stays_open(
    others: clusters.Engines, given: str
) -> None:
    before = set(threading.enumerate())
    with pytest.raises(SessionError, match="found 2 engines in the cluster, expected 3"):
        Session(engines=3, cluster=getattr(others, given))
    until(lambda: set(threading.enumerate()) <= before)  # the driver's thread ends by itself
    assert alive(others)


def test_an_engine_busy_with_something_else_is_named_in_time_and_not_harmed(
    others: clusters.Engines, busy: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crew, "_ANSWER_SECONDS", 2.0)
    begin = time.monotonic()
    with pytest.raises(SessionError) as caught:
        Session(engines=2, cluster=others.client)
    assert time.monotonic() - begin < 10
    assert str(caught.value) == (
        f"found that engine {busy} did not answer within 2 s, expected an idle one: it is busy "
        "with something else, so wait for that, interrupt it, or give other engines"
    )


def test_ctrl_c_while_an_engine_is_busy_ends_the_wait(
    others: clusters.Engines, busy: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crew, "_ANSWER_SECONDS", 300.0)
    monkeypatch.setattr(work, "_STOP_SECONDS", 1.0)
    timer = threading.Timer(2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        Session(engines=2, cluster=others.client)
    assert time.monotonic() - begin < 15
    timer.join()


def test_close_leaves_an_engine_to_what_its_owner_does_there(
    others: clusters.Engines, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    end = tmp_path / "end"
    session = Session(engines=2, cluster=others.client, directory=tmp_path / "a")
    session.load("mlp").run(1)
    result = others.client[1].apply_async(wait_for, str(end))
    begin = time.monotonic()
    session.close()
    assert time.monotonic() - begin < 15
    said = "rank 1 failed: it did not end what it did within 5 s, so it was left to what it does"
    assert f"ddpviz: {said}\n" in capfd.readouterr().err
    end.touch()
    assert result.get(30) == "done"
    assert alive(others)
    with Session(engines=2, cluster=others.client, directory=tmp_path / "b") as session:
        session.load("mlp").run(1)


def test_ranks_formed_anew_on_the_same_engines_lose_nothing(
    others: clusters.Engines, tmp_path: Path
) -> None:
    assert others.profile is not None
    (connection,) = others.profile.glob("security/*-client.json")
    # It knows of no cluster that could start engines: a restart takes those that are there.
    with (
        ipyparallel.Client(str(connection)) as client,
        Session(engines=2, cluster=client, directory=tmp_path / "a") as session,
    ):
        pids = session.pids
        session.load(faulty, mode="everywhere")
        with pytest.raises(RankFailed):
            session.run(20)
        begin = session.recording.last_step + 1
        session.restart().load(faulty).run(3)
        assert session.pids == pids
        steps = session.recording.records(kinds=Kind.STEP, ranks=1)["step"]
        assert list(steps[steps >= begin]) == [begin, begin + 1, begin + 2]
        assert len(session.recording.notes(Process, rank=1)) == 2
        assert session.recording.missing == {}
    assert len(ddpviz.load(tmp_path / "a")) == len(session.recording)


def wait_for(path: str) -> str:
    import pathlib
    import time

    while not pathlib.Path(path).exists():
        time.sleep(0.05)
    return "done"


def test_a_connection_that_was_closed_is_said_to_be(
    others: clusters.Engines, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    client = others.cluster.connect_client_sync()
    session = Session(engines=2, cluster=client, directory=tmp_path / "a")
    session.load("mlp").run(1)
    client.close()
    with pytest.raises(SessionError, match="connection to the cluster closed"):
        session.run(1)
    with pytest.raises(SessionError, match="connection to the cluster closed"):
        session.restart()
    session.close()
    assert "connection to the cluster closed" in capfd.readouterr().err


def test_a_cluster_whose_controller_is_gone_is_said_to_be() -> None:
    cluster, profile = clusters._local_cluster()
    cluster.start_controller_sync()
    cluster.connect_client_sync().close()
    # Nobody will answer: not to be waited for as long as ipyparallel does by itself.
    cluster.connect_client_sync = functools.partial(cluster.connect_client_sync, timeout=1)
    for process in [*cluster.controller.process.children(True), cluster.controller.process]:
        process.kill()
    with pytest.raises(SessionError, match="found no answer from the cluster's controller"):
        Session(engines=1, cluster=cluster)
    cluster.stop_cluster_sync()
    shutil.rmtree(profile)


def test_what_goes_wrong_when_a_session_ends_is_said_and_hides_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(engines=1, directory=tmp_path / "a")
    pid = session.pids[0]
    close = clusters.close

    def broken(engines: clusters.Engines) -> None:
        close(engines)
        raise OSError("no such cluster file")

    monkeypatch.setattr(clusters, "close", broken)
    with pytest.raises(ZeroDivisionError), session:
        raise ZeroDivisionError
    assert "ddpviz: no such cluster file\n" in capfd.readouterr().err
    assert "closed" in repr(session) and not Path(f"/proc/{pid}").exists()


def test_a_cluster_that_does_not_end_is_killed_and_the_session_closed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(engines=1, directory=tmp_path / "a")
    pid = session.pids[0]
    close, stuck = clusters.close, threading.Event()

    def never(engines: clusters.Engines) -> None:
        stuck.wait(60)
        close(engines)

    monkeypatch.setattr(work, "_CLOSE_SECONDS", 1.0)
    monkeypatch.setattr(clusters, "close", never)
    with ThreadPoolExecutor() as pool:
        pool.submit(session.close).result(30)
    assert "the cluster did not end within 1 s: its engines were killed" in capfd.readouterr().err
    assert "closed" in repr(session)
    until(lambda: not Path(f"/proc/{pid}").exists())
    stuck.set()
    session._work.driver._thread.join(30)


def test_ctrl_c_while_engines_start_ends_them(tmp_path: Path) -> None:
    before = {one.pid for one in psutil.Process().children(recursive=True)}

    def interrupt() -> None:
        while not any(
            "ipyparallel.engine" in " ".join(one.cmdline())
            for one in psutil.Process().children(recursive=True)
            if one.pid not in before and one.status() != psutil.STATUS_ZOMBIE
        ):
            time.sleep(0.01)
        for _ in range(2):  # the second does not wait for the first's 5 s
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.5)

    def left() -> list[int]:
        return [
            one.pid
            for one in psutil.Process().children(recursive=True)
            if one.pid not in before and one.status() != psutil.STATUS_ZOMBIE
        ]

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        try:
            Session(engines=2, directory=tmp_path / "a")
        finally:
            thread.join()  # what the first has ended already, the second finds here
    until(lambda: not left())
