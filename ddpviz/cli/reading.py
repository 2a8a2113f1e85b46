"""The recording that most commands take, and the rank of a trace that does not say it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ddpviz.cli.errors import CommandError

if TYPE_CHECKING:
    from ddpviz.recording import Recording

RANK = "of a single trace that does not say it, its rank"


def add_recording(parser: argparse.ArgumentParser) -> None:
    """RECORDING and ``--rank``, for :func:`read_recording`."""
    parser.add_argument(
        "recording", type=Path, metavar="RECORDING", help="its folder, a trace, or a folder of them"
    )
    add_rank(parser)


def add_rank(parser: argparse.ArgumentParser) -> None:
    """``--rank`` alone."""
    parser.add_argument("--rank", type=int, metavar="R", help=RANK)


def read_recording(options: argparse.Namespace) -> Recording:
    """What they name. Raises CommandError where it cannot be read."""
    import ddpviz

    try:
        return ddpviz.load(options.recording, rank=options.rank)
    except (OSError, ValueError) as error:
        raise CommandError(str(error)) from None
