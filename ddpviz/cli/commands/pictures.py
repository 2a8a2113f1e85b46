"""``ddpviz pictures``: the figures of a recording as PNG or SVG, for a slide or a paper."""

from __future__ import annotations

import argparse
from pathlib import Path

from ddpviz.cli.errors import CommandError
from ddpviz.cli.output import say
from ddpviz.cli.reading import add_recording, read_recording

NAME = "pictures"
SUMMARY = "a recording's figures as PNG or SVG, as large as a slide or a paper has them"
DESCRIPTION = (
    "Draw the views of a step into a folder, a file for each that has something to show, by the "
    "browser that is installed here (chromium, Chrome or Edge)."
)
EXAMPLE = "ddpviz pictures runs/first -o pictures --view timeline plan --svg --size paper"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recording(parser)
    parser.add_argument(
        "-o", "--out", type=Path, default=Path("pictures"), metavar="FOLDER", help="(pictures)"
    )
    parser.add_argument(
        "--view", nargs="+", action="extend", dest="views", metavar="VIEW", help="of them all"
    )
    parser.add_argument("--step", type=int, metavar="N", help="its number (the newest)")
    parser.add_argument("--svg", action="store_true", help="SVG instead of PNG")
    parser.add_argument("--size", default="slide", help="slide or paper (slide)")
    parser.add_argument("--theme", default="light", help="light or dark (light)")


def run(options: argparse.Namespace) -> None:
    from ddpviz.export.browser import BrowserError
    from ddpviz.export.pictures import is_empty, title_of, write_picture
    from ddpviz.export.single import COMPARISON, single
    from ddpviz.views.live_views import VIEWS

    if options.out.exists() and not options.out.is_dir():
        raise CommandError(f"found the file {options.out}, expected a folder to write pictures to")
    try:
        recording = read_recording(options)
        all_views = [*VIEWS, *([COMPARISON] if recording.compared is not None else ())]
        for view in options.views or all_views:
            figure = single(recording, view, options.step)
            if is_empty(figure) and not options.views:
                say(f"{view:<14} nothing to draw: {title_of(figure)}")
                continue
            options.out.mkdir(parents=True, exist_ok=True)
            path = write_picture(
                recording,
                view,
                options.out / f"{view}.{'svg' if options.svg else 'png'}",
                step=options.step,
                size=options.size,
                theme=options.theme,
            )
            say(f"{view:<14} {path}")

    except OSError as error:
        raise CommandError(str(error)) from None
    except (BrowserError, ValueError) as error:
        raise CommandError(str(error)) from None
