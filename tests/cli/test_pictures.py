"""``ddpviz pictures``: a file for each view that has something to show."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpviz.views.live_views import VIEWS
from tests.chromium import needs_chromium
from tests.cli.command import ddpviz
from tests.cli.conftest import Demo
from tests.cli.test_errors import assert_one_line


@pytest.mark.browser
@needs_chromium
def test_views_are_drawn_into_a_folder(demo: Demo, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "pictures"
    views = ("--view", "timeline", "--view", "plan")  # asked for one by one, none is forgotten
    done = ddpviz("pictures", demo.folder, "-o", folder, *views, "--svg", "--step", "3")
    assert done.returncode == 0, done.stderr
    assert sorted(one.name for one in folder.iterdir()) == ["plan.svg", "timeline.svg"]
    assert done.stdout.splitlines()[0].split() == ["timeline", str(folder / "timeline.svg")]


@pytest.mark.browser
@pytest.mark.slow
@needs_chromium
def test_without_names_every_view_that_has_something_is_drawn(demo: Demo, tmp_path: Path) -> None:
    done = ddpviz("pictures", demo.folder, "-o", tmp_path / "p", "--svg")
    assert done.returncode == 0, done.stderr
    drawn = {one.stem for one in (tmp_path / "p").iterdir()}
    assert drawn <= {*VIEWS, "comparison"}
    # A demo neither compiles nor compares, and takes no fingerprints.
    assert {*VIEWS} - drawn <= {"compile", "replicas"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--view", "nothing"], "found the view 'nothing', expected one of timeline"),
        (["--step", "77"], "found no step 77"),
        (["--size", "wall"], "found the size 'wall', expected one of slide, paper"),
    ],
)
def test_what_there_is_not(demo: Demo, tmp_path: Path, given: list[str], said: str) -> None:
    assert_one_line(ddpviz("pictures", demo.folder, "-o", tmp_path / "p", *given), said)


def test_without_a_browser(demo: Demo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    asked = ("pictures", demo.folder, "-o", tmp_path / "p", "--view", "timeline")
    assert_one_line(ddpviz(*asked), "found no browser (looked for chromium, ", "install chromium")
