"""No process of a session outlives it, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]

#: Trains in the background and says so; goes on to its end once its processes were listed.
TRAINING = """
import sys, time
from ddpviz.engines import Session
session = Session(engines=2, directory=sys.argv[1]{cluster})
{load}
session.start()
while session.recording.last_step < 5:
    time.sleep(0.01)
print("training", flush=True)
sys.stdin.readline()
{end}
"""
WELL = 'session.load("mlp", layers=1)'
#: In step 5.
HANGS = 'from tests.faults.workload import faulty; session.load(faulty, mode="hang")'


def family(
    directory: Path, end: str, load: str = WELL, cluster: str = ""
) -> tuple[subprocess.Popen[str], list[int]]:
    """A script that trains, and all processes that its session has started."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            TRAINING.format(load=load, end=end, cluster=cluster),
            str(directory),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None and process.stdout.readline() == "training\n"
    children = psutil.Process(process.pid).children(recursive=True)
    children = [one for one in children if not zombie(one.pid)]
    engines = [one for one in children if "ipyparallel.engine" in one.cmdline()]
    controllers = [one for one in children if "ipyparallel.controller" in one.cmdline()]
    assert len(engines) == 2 and controllers
    assert process.stdin is not None
    process.stdin.write("listed\n")
    process.stdin.flush()
    return process, [one.pid for one in children]


def left(pids: list[int]) -> list[int]:
    """Which are still there 10 s later."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        pids = [pid for pid in pids if os.path.exists(f"/proc/{pid}") and not zombie(pid)]
        if not pids:
            break
        time.sleep(0.05)
    return pids


def zombie(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("load", [WELL, HANGS], ids=["well", "hangs"])
def test_nothing_is_left_when_the_kernel_is_killed(load: str, tmp_path: Path) -> None:
    process, pids = family(tmp_path / "a", "time.sleep(600)", load)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert left(pids) == []


def test_nothing_is_left_of_a_profiles_cluster_that_the_session_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    created = [sys.executable, "-m", "IPython", "profile", "create", "--parallel", "mine"]
    subprocess.run(created, check=True, capture_output=True)
    process, pids = family(tmp_path / "a", "time.sleep(600)", cluster=', cluster="mine"')
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert left(pids) == []


@pytest.mark.parametrize("end", ["", "session.close()", "raise SystemExit(1)", "del session"])
def test_nothing_is_left_when_a_script_ends(end: str, tmp_path: Path) -> None:
    process, pids = family(tmp_path / "a", end)
    assert process.wait(30) == (1 if "Exit" in end else 0)
    assert left(pids) == []
