"""``ddpviz export``: a recording as Chrome's JSON, for Perfetto."""

from __future__ import annotations

import argparse
from pathlib import Path

from ddpviz.cli.errors import CommandError

NAME = "export"
SUMMARY = "a recording or traces: as Chrome's JSON, for Perfetto"
DESCRIPTION = (
    "Write a recording, or traces put on one clock, as JSON that Perfetto and chrome://tracing "
    "open: a process per rank, flows from gradient to bucket to collective."
)
EXAMPLE = "ddpviz export runs/first -o first.json.gz"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recording", type=Path, metavar="RECORDING", help="its folder, a trace, or a folder of them"
    )
    parser.add_argument(
        "-o", "--out", type=Path, required=True, metavar="FILE", help="a new .json or .json.gz"
    )


def run(options: argparse.Namespace) -> None:
    import ddpviz
    from ddpviz.traces.writing import write_chrome

    out: Path = options.out
    if not out.name.endswith((".json", ".json.gz")):
        raise CommandError(f"found {out} to write to, expected a name ending in .json or .json.gz")
    if out.exists():
        raise CommandError(f"found a file at {out} already: give another name")
    try:
        recording = ddpviz.load(options.recording)
    except (OSError, ValueError) as error:
        raise CommandError(str(error)) from None
    try:
        write_chrome(recording, out)
    except OSError as error:
        raise CommandError(f"cannot write {out}: {error.strerror}") from None
    print(f"{len(recording)} records of {len(recording.ranks)} ranks are in {out}")
