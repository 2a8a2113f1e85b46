"""What goes wrong is said in one line on stderr, with exit status 2; --help shows an example."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import ddpviz as package
from ddpviz.events import Failure
from tests.cli.command import broken_demo, ddpviz
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


def without_progress(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    progress = re.compile(r"ddpviz: .* \d+ of \d+, ")
    errors = [said for said in done.stderr.splitlines(True) if not progress.match(said)]
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout, "".join(errors))


def test_demo_whose_rank_dies(killed: Demo) -> None:
    done = without_progress(killed.done)
    assert_one_line(
        done,
        "ddpviz demo: rank 1 failed in step ",
        ": its process was killed by SIGKILL. What was recorded until then is in ",
        str(killed.folder),
    )
    assert "restart" not in done.stderr  # there is no session to call it on
    (failure,) = package.load(killed.folder).notes(Failure, rank=1)
    assert failure.message == "its process was killed by SIGKILL"


def test_demo_whose_page_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    page = folder / "timeline.html"
    done = without_progress(broken_demo(folder, 3, "starting engines", lambda pid: page.mkdir()))
    assert_one_line(done, f"cannot write {page}: Is a directory", f"ddpviz show {folder}")
    assert package.load(folder).last_step == 2


@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5"])
@pytest.mark.parametrize("option", ["--engines", "--steps"])
def test_demo_of_a_wrong_number(option: str, value: str) -> None:
    assert_one_line(ddpviz("demo", f"{option}={value}"), option, repr(value))


@pytest.mark.parametrize("arguments", [[], ["sho"], ["show"], ["demo", "--nothing"]])
def test_a_command_line_that_makes_no_sense(arguments: list[str]) -> None:
    assert_one_line(ddpviz(*arguments), "--help")


@pytest.mark.parametrize(
    "command", ["demo", "show", "audit", "slides", "pictures", "explain", "claims", "lab"]
)
def test_help_has_an_example(command: str) -> None:
    done = ddpviz(command, "--help")
    assert done.returncode == 0
    assert f"example: ddpviz {command}" in done.stdout
