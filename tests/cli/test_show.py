"""``ddpviz show`` says of a recording on disk what the run said of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.cli.command import REPOSITORY, ddpviz
from tests.cli.conftest import Demo


def test_show_prints_the_tables_of_the_run(demo: Demo) -> None:
    shown = ddpviz("show", demo.folder)
    assert shown.returncode == 0, shown.stderr
    tables = demo.done.stdout[: demo.done.stdout.index("\nrecording")]
    assert shown.stdout[: shown.stdout.index("\nrecording")] == tables


def test_json_has_a_row_per_step_and_rank(demo: Demo) -> None:
    found = json.loads(ddpviz("show", demo.folder, "--json").stdout)
    assert found["ranks"] == list(range(demo.engines))
    assert found["page"] is None
    pairs = {(row["step"], row["rank"]) for row in found["steps"]}
    assert len(found["steps"]) == len(pairs) == demo.steps * demo.engines
    assert {row["version"] for row in found["plans"]} == {0, 1}


def test_html_writes_the_page(demo: Demo, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    shown = ddpviz("show", demo.folder, "--html", page)
    assert shown.returncode == 0, shown.stderr
    assert f"page       {page}\n" in shown.stdout
    assert "</html>" in page.read_text(encoding="utf-8")


def test_a_reader_that_stops_early_is_no_error(demo: Demo) -> None:
    command = [sys.executable, "-m", "ddpviz.cli", "show", str(demo.folder), "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=REPOSITORY
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read()
        assert process.wait(timeout=120) == 0
    assert errors == b""
