"""Runs ``ddpviz`` in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def ddpviz(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The command with these arguments: its exit status, stdout, stderr."""
    return subprocess.run(
        [sys.executable, "-m", "ddpviz.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
    )


def table_below(text: str, title: str) -> list[list[str]]:
    """Cells of the table that follows the line beginning with ``title``, headings left out."""
    lines = text.split("\n")
    start = next(number for number, line in enumerate(lines) if line.startswith(title))
    rows = lines[start + 4 :]  # title, blank, headings, rule
    return [line.split() for line in rows[: rows.index("")]]
