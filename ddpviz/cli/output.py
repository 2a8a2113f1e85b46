"""What a command writes: text that a terminal does not obey, files that are no input of its."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ddpviz.cli.errors import CommandError
from ddpviz.printable import printable


def say(text: object) -> None:
    """Print it on stdout."""
    print(printable(str(text)), flush=True)


def check_output(out: Path, inputs: Iterable[Path]) -> None:
    """Raises :class:`CommandError` where writing would destroy what is read."""
    for given in inputs:
        if not given.exists():
            continue  # reading it says so
        inside = given.is_dir() and out.parent.exists() and out.parent.samefile(given)
        if out.exists() and (out.samefile(given) or (inside and _is_read(out))):
            raise CommandError(f"found {out} to write to, which is what is read: give another name")


def _is_read(file: Path) -> bool:
    from ddpviz.recording.files import DESCRIPTION, RANK_FILE
    from ddpviz.traces.opening import may_be_trace

    name = file.name
    return name == DESCRIPTION or RANK_FILE.fullmatch(name) is not None or may_be_trace(file)
