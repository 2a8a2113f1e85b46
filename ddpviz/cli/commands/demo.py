"""``ddpviz demo``: train a small network on real ranks, and leave the recording and its page."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from ddpviz.cli.errors import CommandError

NAME = "demo"
SUMMARY = "real DDP on local engines: table of steps, recording, timeline page"
DESCRIPTION = (
    "Start engines, train the built-in convnet with the real DistributedDataParallel, record every "
    "rank, and leave the recording and timeline.html. Runs without a GPU and without a network."
)
EXAMPLE = "ddpviz demo --engines 2 --steps 20 --out runs/first"

#: convnet has 3.75 MiB of gradients: DDP's default of 25 MiB would leave them in one bucket.
_BUCKET_CAP_MB = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--engines", type=_at_least_one, default=2, metavar="N", help="ranks (2)")
    parser.add_argument("--steps", type=_at_least_one, default=20, metavar="N", help="steps (20)")
    parser.add_argument(
        "-o",
        "--out",
        type=Path,
        metavar="DIR",
        help="folder for the recording and its page, new or empty (runs/demo-DATE-TIME)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def run(options: argparse.Namespace) -> None:
    from ddpviz import Session
    from ddpviz.cli import report
    from ddpviz.engines import RankFailed, SessionError
    from ddpviz.export.page import write_page

    directory = _new_folder(options.out)
    try:
        with Session(engines=options.engines, directory=directory) as session:
            session.load("convnet", bucket_cap_mb=_BUCKET_CAP_MB)
            session.run(steps=options.steps)
    except RankFailed as error:
        # Its traceback is in the recording; here is no session to restart.
        raise CommandError(f"{error.summary}. {_left(directory)}") from None
    except BrokenPipeError:
        raise
    except (SessionError, OSError) as error:
        raise CommandError(f"{_first_line(error)}. {_left(directory)}") from None
    except KeyboardInterrupt:
        print(_left(directory), file=sys.stderr)
        raise
    page = directory / "timeline.html"
    try:
        write_page(session.recording, page)
    except (OSError, ValueError) as error:
        raise CommandError(
            f"cannot write {page}: {_first_line(error)}. The recording is in {directory}: "
            f"ddpviz show {directory} --html PAGE writes a page elsewhere"
        ) from None
    report.write(session.recording, directory, page, as_json=options.json)


def _left(directory: Path) -> str:
    return f"What was recorded until then is in {directory}"


def _first_line(error: Exception) -> str:
    """Below it an error may have more, as what an engine said last."""
    reason = error.strerror if isinstance(error, OSError) else None
    return (reason or str(error) or type(error).__name__).splitlines()[0].rstrip(".")


def _new_folder(out: Path | None) -> Path:
    directory = out or Path("runs") / time.strftime("demo-%Y%m%d-%H%M%S")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        taken = any(directory.iterdir())
    except OSError as error:
        raise CommandError(f"cannot make the folder {directory}: {error.strerror}") from None
    if taken:
        raise CommandError(
            f"found files in {directory}, expected a new or empty folder: give --out another name"
        )
    return directory


def _at_least_one(text: str) -> int:
    if not (text.isdecimal() and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a whole number from 1 on")
    return int(text)
