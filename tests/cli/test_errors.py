"""What goes wrong is said in one line on stderr, with exit status 2; --help shows an example."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cli.command import ddpviz
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
