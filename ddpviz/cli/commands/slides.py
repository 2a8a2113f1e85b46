"""``ddpviz slides``: a recording as a deck of slides that works offline, and as a PDF of it."""

from __future__ import annotations

import argparse
import difflib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from ddpviz.cli.errors import CommandError
from ddpviz.cli.output import check_output, say
from ddpviz.cli.reading import add_rank

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddpviz.recording import Recording

NAME = "slides"
SUMMARY = "a recording, or traces: slides in one HTML file that works offline; --pdf"
DESCRIPTION = (
    "Write a recording, or traces, as a deck of slides: one HTML file whose figures are alive "
    "without a network. In it, arrows go from slide to slide, S opens the speaker's view, T shows "
    "the speaker's notes below the slide, ? lists all keys."
)
EXAMPLE = "ddpviz slides runs/first -o talk.html --slides job timeline countdown --pdf talk.pdf"


#: Of the costs of a trace's step.
_MOST_COSTS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recording",
        type=Path,
        nargs="+",
        metavar="RECORDING",
        help="its folder; a trace, several, or a folder of them",
    )
    add_rank(parser)
    parser.add_argument(
        "-o",
        "--out",
        type=Path,
        default=Path("slides.html"),
        metavar="DECK",
        help="the file to write (slides.html)",
    )
    parser.add_argument(
        "--slides",
        nargs="+",
        action="extend",
        metavar="SLIDE",
        help="some of job, timeline, plan, countdown, buffers, overlap, "
        "comparison, findings, source, close, in the order to show them (all that the recording "
        "has something for; source where a step's functions were followed)",
    )
    parser.add_argument(
        "--step",
        type=int,
        action="append",
        dest="steps",
        metavar="N",
        help="show this step (the median one); more than once: the steps to choose from",
    )
    parser.add_argument(
        "--title",
        action="append",
        default=[],
        metavar="TITLE",
        help="of the deck; SLIDE=TITLE of a slide; may be given more than once",
    )
    parser.add_argument("--theme", default="auto", help="light, dark, or auto: as the reader's")
    parser.add_argument(
        "--pdf",
        type=Path,
        metavar="PDF",
        help="print it there too, a page for every slide, by the browser that is installed here",
    )


def run(options: argparse.Namespace) -> None:
    from ddpviz.export.slides import SLIDES, write_slides
    from ddpviz.views.text import size

    paths: list[Path] = options.recording
    for out in (options.out, options.pdf):
        if out is not None:
            check_output(out, paths)
    if options.pdf is not None and options.pdf.absolute() == options.out.absolute():
        raise CommandError(f"found {options.pdf} for the deck and for its PDF: give two names")
    title, titles = _titles(options.title, SLIDES)
    recording, costs = _read(paths, options.rank)
    try:
        deck = write_slides(
            recording,
            options.out,
            slides=options.slides,
            titles=titles,
            title=title,
            steps=options.steps,
            theme=options.theme,
            source=shlex.join(str(path) for path in paths),
            costs=costs,
        )
    except OSError as error:
        raise CommandError(f"cannot write {options.out}: {error.strerror}") from None
    except (RuntimeError, ValueError) as error:
        raise CommandError(str(error)) from None
    for remark in recording.remarks:
        say(f"note       {remark}")
    say(f"slides     {deck}, {size(deck.stat().st_size)}: open it in a browser")
    if options.pdf is not None:
        from ddpviz.export.browser import BrowserError
        from ddpviz.export.slides.pdf import write_pdf

        try:
            pdf = write_pdf(deck, options.pdf)
        except OSError as error:
            raise CommandError(f"cannot write {options.pdf}: {error.strerror}") from None
        except BrowserError as error:
            raise CommandError(str(error)) from None
        say(f"pdf        {pdf}, {size(pdf.stat().st_size)}")


def _read(paths: list[Path], rank: int | None) -> tuple[Recording, list[str]]:
    """A recording, or that of traces with what costs most in their steps."""
    import ddpviz
    from ddpviz.traces import is_trace, read

    try:
        if not all(is_trace(path) for path in paths):
            if len(paths) > 1:
                raise CommandError(
                    f"found {len(paths)} paths, expected one recording, or traces alone"
                )
            return ddpviz.load(paths[0], rank=rank), []
        imported = read(paths, rank)
    except (OSError, ValueError) as error:
        raise CommandError(str(error)) from None
    if not imported.runs:
        return imported.recording, []
    from ddpviz.explain.story import tell

    costs = tell(imported).costs[:_MOST_COSTS]
    return imported.recording, [cost.sentence.removesuffix(".") for cost in costs]


def _titles(given: list[str], slides: Mapping[str, str]) -> tuple[str | None, dict[str, str]]:
    """The deck's, and those of slides: what stands before "=" is a slide where there is one.
    Raises CommandError where it is nearly one."""
    title, titles = None, {}
    for one in given:
        name, equals, rest = one.partition("=")
        near = difflib.get_close_matches(name, slides, n=1, cutoff=0.75)
        if equals and near and name not in slides:
            raise CommandError(f"found a title for the slide {name!r}, expected {near[0]!r}")
        if equals and name in slides:
            titles[name] = rest
        else:
            title = one
    return title, titles
