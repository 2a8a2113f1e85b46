"""A demo that ends early: Ctrl-C, or an engine that dies. What was recorded stays, and is named."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import ddpviz
from ddpviz.events import Kind
from tests.cli.command import broken_demo
from tests.cli.conftest import Demo


def recorded_steps(folder: Path) -> int:
    return len(ddpviz.load(folder).records(kinds=[Kind.STEP], ranks=[0]))


def test_ctrl_c_keeps_what_was_recorded(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = broken_demo(
        folder,
        1_000_000,
        r"training, step [1-9]",
        lambda group: os.killpg(group, signal.SIGINT),
    )
    assert done.returncode == 130
    assert done.stdout == ""
    assert done.stderr.endswith(
        f"What was recorded until then is in {folder}\nddpviz demo: interrupted\n"
    )
    assert recorded_steps(folder) > 0


def test_an_engine_that_dies_is_named(killed: Demo) -> None:
    assert killed.done.returncode == 2
    assert killed.done.stdout == ""
    assert "ddpviz demo: rank 1 failed in step" in killed.done.stderr
    assert f"What was recorded until then is in {killed.folder}\n" in killed.done.stderr
    assert recorded_steps(killed.folder) > 0
