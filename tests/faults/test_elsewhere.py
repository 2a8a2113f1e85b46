"""Ranks on another machine: their processes, and maybe their files, cannot be looked at from here.

The other machine is a namespace with another host name (and another file system where a test says
so), which is what tells machines apart; its engines are real. Needs the right to make one.
"""

from __future__ import annotations

import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ipyparallel
import psutil
import pytest

import ddpviz
from ddpviz.engines import RankFailed, Session
from ddpviz.engines import cluster as clusters
from ddpviz.events import Failure
from tests.faults.expect import LIMIT_SECONDS, base, failing_run, strike, when, whole, works_again
from tests.faults.workload import FAULT_STEP, faulty
from tests.waiting import until

HOST = "elsewhere"

#: The hub takes an engine at the second beat after it came; as many seconds may be missed as usual.
HEARTBEAT = ["--HeartMonitor.period=200", "--HeartMonitor.max_heartmonitor_misses=150"]


@contextmanager
def engines_elsewhere(hidden: Path | None = None) -> Iterator[ipyparallel.Cluster]:
    """A cluster with two engines on the other machine; ``hidden``: a folder they do not share."""
    namespace = ["unshare", "--uts", "--mount", "sh", "-c"]
    script = f"hostname {HOST} && "
    script += f"mount -t tmpfs none '{hidden}' && " if hidden else ""
    if subprocess.run([*namespace, script + "true"], capture_output=True).returncode:
        pytest.skip("needs the right to make a namespace")
    with tempfile.TemporaryDirectory() as profile:
        cluster = ipyparallel.Cluster(
            profile_dir=profile,
            controller="local",
            engines="local",
            controller_args=HEARTBEAT,
            delay=0,
            n=2,
        )
        clusters._guard(cluster)
        command = cluster.config.LocalEngineSetLauncher.engine_cmd
        engine = [*namespace, script + 'exec "$@"', "sh", *command]
        for launcher in (cluster.config.LocalEngineLauncher, cluster.config.LocalEngineSetLauncher):
            launcher.engine_cmd = engine
        client = cluster.start_and_connect_sync()
        try:
            client.wait_for_engines(2, timeout=60)
            yield cluster
        finally:
            client.close()
            cluster.stop_cluster_sync()


def hang(session: Session, where: int) -> int:
    """Train in the background until a rank hangs in step 5; the number of step 0."""
    session.load(faulty, mode="hang", where=where)
    first = base(session)
    session.start()
    until(lambda: session.recording.last_step >= first + FAULT_STEP, seconds=30)
    return first


def test_a_rank_elsewhere_is_killed_known_to_be_dead_and_saved(
    impatient: None, tmp_path: Path
) -> None:
    with (
        engines_elsewhere() as cluster,
        Session(cluster=cluster, directory=tmp_path / "a") as session,
    ):
        first = hang(session, where=1)
        begin = time.monotonic()
        with pytest.raises(RankFailed) as caught:
            session.stop()
        assert time.monotonic() - begin < LIMIT_SECONDS
        error = caught.value
        assert (error.rank, error.step) == (1, first + FAULT_STEP)
        assert "in batch" in error.rank_traceback and error.remarks == ()
        assert not list((tmp_path / "a").glob("*.ring"))
        for rank in (0, 1):
            whole(session, rank, first, first + FAULT_STEP)
        works_again(session)

        pid = session.pids[1]
        session.load(faulty)
        first = base(session)
        fault = tmp_path / "fault"
        thread = when(
            lambda: session.recording.last_step > first + 5,
            lambda: strike(pid, signal.SIGKILL, fault),
        )
        error = failing_run(session, fault)
        thread.join()
        assert (error.rank, error.reason, error.remarks) == (1, "its process ended", ())
        assert ddpviz.load(session.directory).notes(Failure)[-1].step == error.step
        whole(session, 1, first, error.step)
        works_again(session)


def test_files_of_a_rank_that_may_live_are_read_but_not_touched(
    impatient: None, tmp_path: Path
) -> None:
    with (
        engines_elsewhere() as cluster,
        Session(cluster=cluster, directory=tmp_path / "a") as session,
    ):
        first = hang(session, where=1)
        rank = psutil.Process(session.pids[1])
        nannies = rank.children()
        for nanny in nannies:
            nanny.suspend()  # so that no signal gets through
        try:
            with pytest.raises(RankFailed) as caught:
                session.stop()
            assert rank.is_running()
        finally:
            for nanny in nannies:
                nanny.kill()
        error = caught.value
        assert (error.rank, error.step) == (1, first + FAULT_STEP)
        assert error.remarks == (
            "rank 1 is not known to have ended: its files were read, but not made whole as long "
            "as it may write to them",
        )
        assert [path.name for path in (tmp_path / "a").glob("*.ring")] == ["rank-0001.ring"]
        assert session.recording.notes(Failure)[-1].rank == 1
        works_again(session)


def test_a_rank_whose_files_are_elsewhere_is_said_to_have_them_there(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    fault = tmp_path / "fault"
    with (
        engines_elsewhere(hidden=tmp_path / "a") as cluster,
        Session(cluster=cluster, directory=tmp_path / "a") as session,
    ):
        session.load(faulty)
        pid = session.pids[1]
        thread = when(
            lambda: session.recording.last_step > 5, lambda: strike(pid, signal.SIGKILL, fault)
        )
        error = failing_run(session, fault)
        thread.join()
        assert error.rank == 1 and " or later" in error.summary
        assert error.remarks == (
            f"rank 1 wrote its records on {HOST}: what it had not sent yet is there, in "
            f"{tmp_path / 'a'}",
        )
        assert not list((tmp_path / "a").iterdir())
        assert session.recording.notes(Failure)[-1].rank == 1
        works_again(session)
