"""What goes wrong is said in one line on stderr, with exit status 2; --help shows an example."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import ddpviz as package
from ddpviz.events import Failure, Process
from tests.cli.command import REPOSITORY, ddpviz
from tests.cli.conftest import Demo


def assert_one_line(done: subprocess.CompletedProcess[str], *said: str) -> None:
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("ddpviz")
    for text in said:
        assert text in done.stderr


@pytest.mark.parametrize("kind", ["nothing", "file", "empty folder", "other folder"])
def test_show_of_what_is_no_recording(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "it"
    if kind == "file":
        path.write_text("no recording")
    elif kind != "nothing":
        path.mkdir()
        if kind == "other folder":
            (path / "notes.txt").write_text("no recording")
    assert_one_line(ddpviz("show", path), str(path))


def test_show_where_the_page_cannot_be_written(demo: Demo, tmp_path: Path) -> None:
    page = tmp_path / "nowhere" / "page.html"
    assert_one_line(ddpviz("show", demo.folder, "--html", page), str(page))


def test_demo_into_a_folder_with_files(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    assert_one_line(ddpviz("demo", "--out", tmp_path), str(tmp_path), "new or empty")


def broken_demo(
    folder: Path, steps: int, line: str, fault: Callable[[], None]
) -> subprocess.CompletedProcess[str]:
    """A demo to which something happens when it says ``line`` (a pattern) on stderr.

    Its stderr comes without the lines of its progress.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "ddpviz.cli", "demo", f"--steps={steps}", f"--out={folder}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )
    assert process.stderr is not None
    for said in process.stderr:
        if re.search(line, said):
            break
    fault()
    stdout, stderr = process.communicate(timeout=120)
    progress = re.compile(r"ddpviz: .* \d+ of \d+, ")
    errors = [said for said in stderr.splitlines(True) if not progress.match(said)]
    return subprocess.CompletedProcess([], process.returncode, stdout, "".join(errors))


def test_demo_whose_rank_dies(tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def fault() -> None:
        os.kill(package.load(folder).notes(Process, rank=1)[0].pid, signal.SIGKILL)

    done = broken_demo(folder, 1_000_000, r"training, step [1-9]", fault)
    assert_one_line(
        done,
        "ddpviz demo: rank 1 failed in step ",
        ": its process was killed by SIGKILL. What was recorded until then is in ",
        str(folder),
    )
    assert "restart" not in done.stderr  # there is no session to call it on
    (failure,) = package.load(folder).notes(Failure, rank=1)
    assert failure.message == "its process was killed by SIGKILL"


def test_demo_whose_page_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = broken_demo(folder, 3, "starting engines", (folder / "timeline.html").mkdir)
    assert_one_line(
        done, f"cannot write {folder / 'timeline.html'}: Is a directory", f"ddpviz show {folder}"
    )
    assert package.load(folder).last_step == 2


@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5"])
@pytest.mark.parametrize("option", ["--engines", "--steps"])
def test_demo_of_a_wrong_number(option: str, value: str) -> None:
    assert_one_line(ddpviz("demo", f"{option}={value}"), option, repr(value))


@pytest.mark.parametrize("arguments", [[], ["sho"], ["show"], ["demo", "--nothing"]])
def test_a_command_line_that_makes_no_sense(arguments: list[str]) -> None:
    assert_one_line(ddpviz(*arguments), "--help")


@pytest.mark.parametrize("command", ["demo", "show", "lab"])
def test_help_has_an_example(command: str) -> None:
    done = ddpviz(command, "--help")
    assert done.returncode == 0
    assert f"example: ddpviz {command}" in done.stdout
