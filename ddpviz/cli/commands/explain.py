"""``ddpviz explain``: what a step did, and of traces what it cost and how to change it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpviz.cli.errors import CommandError
from ddpviz.cli.output import check_output, say

if TYPE_CHECKING:
    from ddpviz.explain.story import Story
    from ddpviz.recording import Recording
    from ddpviz.traces import Imported

NAME = "explain"
SUMMARY = "profiler traces or a recording: what each part is, what it costs, how to change it"
DESCRIPTION = (
    "Explain profiler traces, of one rank or of many: what costs most, what is not wrong, where "
    "each rank's time went, and the tree of DDP's frames with links to torch's lines. Of a "
    "recording: a walk through one of its steps."
)
EXAMPLE = "ddpviz explain trace.rank0.json.gz trace.rank1.json.gz --html story.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        type=Path,
        nargs="+",
        metavar="PATH",
        help="traces, a folder of them, or a recording's folder",
    )
    parser.add_argument(
        "--step",
        type=int,
        metavar="N",
        help="only this step; of a recording, -1 for the construction of the first DDP module, -2 "
        "of the second (the last step whose functions were followed, or the last one)",
    )
    parser.add_argument(
        "--rank",
        type=int,
        metavar="R",
        help="whose step (the lowest); of a single trace that does not say it, its rank",
    )
    parser.add_argument(
        "--against",
        type=Path,
        nargs="+",
        action="extend",
        metavar="PATH",
        help="compare with the traces of a run",
    )
    parser.add_argument("--html", type=Path, metavar="PAGE", help="write a page there; offline")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(options: argparse.Namespace) -> None:
    from ddpviz.traces import is_trace

    paths: list[Path] = options.paths
    against: list[Path] = options.against or []
    if options.html is not None:
        check_output(options.html, [*paths, *against])
        if against:
            raise CommandError("found --html with --against, which has no page: leave one out")
    recorded = [path for path in (*paths, *against) if path.exists() and not is_trace(path)]
    if recorded and (against or len(paths) > 1):
        raise CommandError(f"found {recorded[0]}, expected traces: recordings are told one by one")
    if recorded:
        _recording(options, paths[0])
        return
    imported = _read(paths, options.rank)
    if not imported.runs:
        _unprofiled(options, imported.recording)
        return
    story = _story(imported, options)
    if against:
        from ddpviz.explain.story import compare

        other = _read(against, options.rank)
        compared = compare(
            (story, imported.recording),
            (_story(other, options), other.recording),
            (_called(paths), _called(against)),
        )
        _print(compared, options)
        return
    if options.html is not None:
        _write(options.html, story.to_html())
    _print(story, options)


def _called(paths: list[Path]) -> str:
    """The files of a run, in a few words."""
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{paths[0]}{more}"


def _print(told: Any, options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(told.to_json(), indent=1))
    else:
        say(told)


def _read(paths: Sequence[Path], rank: int | None) -> Imported:
    from ddpviz.traces import NoRank, read

    try:
        try:
            return read(paths)
        except NoRank:
            if rank is None:
                raise
            return read(paths, rank)
    except (OSError, ValueError) as error:
        raise CommandError(str(error)) from None


def _story(imported: Imported, options: argparse.Namespace) -> Story:
    from ddpviz.explain.story import tell

    if not imported.runs:
        raise CommandError("found no profiler's rows, expected a profiler trace to compare with")
    try:
        return tell(imported, options.rank, options.step)
    except ValueError as error:
        raise CommandError(str(error)) from None


def _unprofiled(options: argparse.Namespace, recording: Recording) -> None:
    """An export of a recording, or dumps of the flight recorder: no profiler's rows."""
    from ddpviz.analysis.waiting import told, waiting

    if recording.last_step >= 0:
        _walk(options, recording)
        return
    if options.html is not None or options.step is not None:
        raise CommandError(
            "found a dump of the flight recorder, which has no steps: it is told without --html "
            "and --step"
        )
    found = waiting(recording)
    if options.json:
        ranks = found.table().to_dict("records")
        print(json.dumps({"reason": found.reason, "ranks": ranks, "remarks": recording.remarks}))
        return
    say(told(found) or "no collective was open when it was written")
    for remark in recording.remarks:
        say(f"note  {remark}")


def _recording(options: argparse.Namespace, path: Path) -> None:
    import ddpviz

    try:
        recording = ddpviz.load(path)
    except (OSError, ValueError) as error:
        raise CommandError(str(error)) from None
    _walk(options, recording)


def _walk(options: argparse.Namespace, recording: Recording) -> None:
    from ddpviz import explain

    rank = options.rank if options.rank is not None else min(recording.ranks, default=0)
    try:
        walk = explain.walk(recording, options.step, rank)
    except ValueError as error:
        raise CommandError(str(error)) from None
    if options.html is not None:
        _write(options.html, walk.to_html())
    _print(walk, options)


def _write(path: Path, html: str) -> None:
    try:
        path.write_text(html, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from None
