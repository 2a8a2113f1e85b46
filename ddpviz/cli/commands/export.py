"""``ddpviz export``: a recording as Chrome's JSON, for Perfetto, or as a Parquet table."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ddpviz.cli.errors import CommandError
from ddpviz.cli.output import check_output, say
from ddpviz.cli.reading import add_recording, read_recording
from ddpviz.printable import printable

NAME = "export"
SUMMARY = "a recording or traces: as Chrome's JSON, for Perfetto, or as Parquet"
DESCRIPTION = (
    "Write a recording, or traces put on one clock, as JSON that Perfetto and chrome://tracing "
    "open: a process per rank, flows from gradient to bucket to collective. With a name that ends "
    "in .parquet, as a table with a row per record."
)
EXAMPLE = "ddpviz export runs/first -o first.json.gz"
_ENDINGS = (".json", ".json.gz", ".parquet")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recording(parser)
    parser.add_argument(
        "-o",
        "--out",
        type=Path,
        required=True,
        metavar="FILE",
        help="a new .json, .json.gz or .parquet",
    )


def run(options: argparse.Namespace) -> None:
    from ddpviz.export.parquet import write_parquet
    from ddpviz.traces.writing import write_chrome

    out: Path = options.out
    if not out.name.endswith(_ENDINGS):
        expected = f"{', '.join(_ENDINGS[:-1])} or {_ENDINGS[-1]}"
        raise CommandError(f"found {out} to write to, expected a name ending in {expected}")
    check_output(out, [options.recording])
    if out.exists():
        raise CommandError(f"found a file at {out} already: give another name")
    recording = read_recording(options)
    try:
        write = write_parquet if out.suffix == ".parquet" else write_chrome
        write(recording, out)
    except OSError as error:
        raise CommandError(f"cannot write {out}: {error.strerror}") from None
    for remark in recording.remarks:
        print(f"ddpviz export: note: {printable(remark)}", file=sys.stderr)
    say(f"{len(recording)} records of {len(recording.ranks)} ranks are in {out}")
