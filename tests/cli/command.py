"""Runs ``ddpviz`` in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
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


def broken_demo(
    folder: Path, steps: int, line: str, fault: Callable[[int], object]
) -> subprocess.CompletedProcess[str]:
    """A demo to which something happens when it says ``line`` (a pattern) on stderr.

    ``fault`` takes its process, which leads a process group of its own. Its stderr is what comes
    afterwards.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "ddpviz.cli", "demo", f"--steps={steps}", f"--out={folder}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        start_new_session=True,
    )
    try:
        assert process.stderr is not None
        said = [*read_to(line, process.stderr)]
        assert process.poll() is None, "".join(said)
        fault(process.pid)
        stdout, stderr = process.communicate(timeout=120)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def read_to(pattern: str, lines: Iterable[str]) -> Iterator[str]:
    """Lines up to the first that the pattern is in."""
    for line in lines:
        yield line
        if re.search(pattern, line):
            return


def table_below(text: str, title: str) -> list[list[str]]:
    """Cells of the table that follows the line beginning with ``title``, headings left out."""
    lines = text.split("\n")
    start = next(number for number, line in enumerate(lines) if line.startswith(title))
    rows = lines[start + 4 :]  # title, blank, headings, rule
    return [line.split() for line in rows[: rows.index("")]]
