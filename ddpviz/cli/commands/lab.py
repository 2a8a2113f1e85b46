"""``ddpviz lab``: JupyterLab with the extension, at the tour."""

from __future__ import annotations

import argparse
from pathlib import Path

from ddpviz.cli.errors import CommandError

NAME = "lab"
SUMMARY = "JupyterLab with the extension, at the tour"
DESCRIPTION = (
    "Open JupyterLab in a folder, at the tour notebook, with those on the article's parts beside "
    "it; what is there already is kept."
)
EXAMPLE = "ddpviz lab tour --no-browser"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        type=Path,
        nargs="?",
        default=Path("."),
        metavar="FOLDER",
        help="where JupyterLab opens and the tour is put (here)",
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="print the address instead of opening a browser"
    )
    parser.add_argument(
        "--allow-root", action="store_true", help="as root: JupyterLab refuses without it"
    )


def run(options: argparse.Namespace) -> None:
    from ddpviz.lab import open_lab, place_tour

    try:
        tour = place_tour(options.folder)
    except OSError as error:
        raise CommandError(f"cannot put the tour in {options.folder}: {error.strerror}") from None
    try:
        open_lab(tour, browser=not options.no_browser, allow_root=options.allow_root)
    except ModuleNotFoundError as error:
        raise CommandError(str(error)) from None
