"""Real runs of ``ddpviz demo``, for all tests of the command: a whole one, and a broken one."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
from pathlib import Path

import pytest

from ddpviz import load
from ddpviz.events import Process
from tests.cli.command import broken_demo, ddpviz

STEPS = 6
ENGINES = 2


@dataclasses.dataclass(frozen=True)
class Demo:
    """What the run printed, and its folder."""

    done: subprocess.CompletedProcess[str]
    folder: Path
    steps: int = STEPS
    engines: int = ENGINES


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    folder = tmp_path_factory.mktemp("demo") / "run"
    done = ddpviz("demo", "--engines", str(ENGINES), "--steps", str(STEPS), "--out", folder)
    assert done.returncode == 0, done.stderr
    return Demo(done, folder)


@pytest.fixture(scope="session")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """In the middle of its training rank 1 was killed."""
    folder = tmp_path_factory.mktemp("killed") / "run"

    def kill(pid: int) -> None:
        os.kill(load(folder).notes(Process, rank=1)[0].pid, signal.SIGKILL)

    steps = 1_000_000
    return Demo(broken_demo(folder, steps, r"training, step [1-9]", kill), folder, steps)
