"""One real run of ``ddpviz demo``, for all tests of the command."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest

from tests.cli.command import ddpviz

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
