"""A demo that ends early: Ctrl-C, or an engine that dies. What was recorded stays, and is named."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ddpviz
from ddpviz.events import Kind, Process
from tests.cli.command import REPOSITORY


@contextmanager
def endless_demo(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A demo in the middle of its training, in a process group of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ddpviz.cli", "demo", "--steps", "1000000", "--out", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        start_new_session=True,
    )
    try:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if re.search(r"training, step [1-9]", line):
                break
        assert process.poll() is None, "".join(said)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def recorded_steps(folder: Path) -> int:
    return len(ddpviz.load(folder).records(kinds=[Kind.STEP], ranks=[0]))


def test_ctrl_c_keeps_what_was_recorded(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with endless_demo(folder) as process:
        os.killpg(process.pid, signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stdout == ""
    assert stderr.endswith(
        f"What was recorded until then is in {folder}\nddpviz demo: interrupted\n"
    )
    assert recorded_steps(folder) > 0


def test_an_engine_that_dies_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with endless_demo(folder) as process:
        (victim,) = ddpviz.load(folder).notes(Process, rank=1)
        os.kill(victim.pid, signal.SIGKILL)
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 2
    assert stdout == ""
    assert "ddpviz demo: rank 1 failed in step" in stderr
    assert f"What was recorded until then is in {folder}\n" in stderr
    assert recorded_steps(folder) > 0
