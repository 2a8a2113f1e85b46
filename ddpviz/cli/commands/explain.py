"""``ddpviz explain``: what a step did, and of traces what it cost and how to change it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ddpviz.cli.errors import CommandError

if TYPE_CHECKING:
    from ddpviz.explain.story import Story
    from ddpviz.recording import Recording

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
    parser.add_argument("--rank", type=int, metavar="R", help="whose step (the lowest)")
    parser.add_argument(
        "--against", type=Path, nargs="+", metavar="PATH", help="compare with the traces of a run"
    )
    parser.add_argument("--html", type=Path, metavar="PAGE", help="write a page there; offline")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(options: argparse.Namespace) -> None:
    from ddpviz.traces import is_trace

    paths: list[Path] = options.paths
    if len(paths) == 1 and not is_trace(paths[0]):
        _recording(options, paths[0])
        return
    story, recording = _story(paths, options.rank, options.step)
    if options.against:
        from ddpviz.explain.story import compare

        other = _story(options.against, options.rank, options.step)
        compared = compare((story, recording), other)
        print(json.dumps(compared.to_json(), indent=1) if options.json else compared)
        return
    if options.html is not None:
        _write(options.html, story.to_html())
    print(json.dumps(story.to_json(), indent=1) if options.json else story)


def _story(paths: Sequence[Path], rank: int | None, step: int | None) -> tuple[Story, Recording]:
    from ddpviz.explain.story import tell
    from ddpviz.traces import read

    try:
        imported = read(paths)
        return tell(imported, rank, step), imported.recording
    except (OSError, ValueError) as error:
        raise CommandError(str(error)) from None


def _recording(options: argparse.Namespace, path: Path) -> None:
    import ddpviz
    from ddpviz import explain

    if options.against:
        raise CommandError(f"found {path}, expected traces to compare: recordings are not compared")
    try:
        recording = ddpviz.load(path)
        ranks = recording.ranks
        rank = options.rank if options.rank is not None else min(ranks, default=0)
        walk = explain.walk(recording, options.step, rank)
    except (OSError, ValueError) as error:
        raise CommandError(str(error)) from None
    if options.html is not None:
        _write(options.html, walk.to_html())
    print(json.dumps(walk.to_json(), indent=1) if options.json else walk)


def _write(path: Path, html: str) -> None:
    try:
        path.write_text(html, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from None
