"""``ddpviz show``: a recording as tables, as JSON, or as a page."""

from __future__ import annotations

import argparse
from pathlib import Path

from ddpviz.cli.errors import CommandError
from ddpviz.cli.output import check_output
from ddpviz.cli.reading import add_recording, read_recording

NAME = "show"
SUMMARY = "a recording: tables, --json, or --html page"
DESCRIPTION = "Print a recording's steps and bucket plans, and write its views as an HTML page."
EXAMPLE = "ddpviz show runs/first --html timeline.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recording(parser)
    parser.add_argument(
        "--html", type=Path, metavar="PAGE", help="write the page there; it works offline"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def run(options: argparse.Namespace) -> None:
    from ddpviz.cli import report

    if options.html is not None:
        check_output(options.html, [options.recording])
    recording = read_recording(options)
    page = None
    if options.html is not None:
        from ddpviz.export.page import write_page

        try:
            page = write_page(recording, options.html)
        except OSError as error:
            raise CommandError(f"cannot write {options.html}: {error.strerror}") from None
        except ValueError as error:
            raise CommandError(str(error)) from None
    report.write(recording, options.recording, page, as_json=options.json)
