"""``ddpviz explain``: a step of a recording, station by station, with torch's own lines."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ddpviz.cli.errors import CommandError

NAME = "explain"
SUMMARY = "a step of a recording: what each part is, what it costs, how to change it"
DESCRIPTION = (
    "Walk through one step of a recording: what ran, what it costs, how to change it and what that "
    "risks, with the lines of the installed torch. Profiler traces are not read yet."
)
EXAMPLE = "ddpviz explain runs/first --step 3"

_TRACES = ("*.json", "*.json.gz")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recording", type=Path, metavar="RECORDING", help="its folder")
    parser.add_argument(
        "--step",
        type=int,
        metavar="N",
        help="which step; -1 for the construction of the first DDP module, -2 of the second "
        "(the last step whose functions were followed, or the last one)",
    )
    parser.add_argument("--rank", type=int, default=0, metavar="R", help="whose step (0)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(options: argparse.Namespace) -> None:
    import ddpviz
    from ddpviz import explain

    path: Path = options.recording
    if path.is_file():
        raise CommandError(_no_traces(f"a file at {path}"))
    try:
        recording = ddpviz.load(path)
    except (OSError, ValueError) as error:
        if path.is_dir() and any(next(path.glob(one), None) for one in _TRACES):
            raise CommandError(_no_traces(f"no recording in {path}, but JSON files")) from None
        raise CommandError(str(error)) from None
    try:
        walk = explain.walk(recording, options.step, options.rank)
    except ValueError as error:
        raise CommandError(str(error)) from None
    print(json.dumps(walk.to_json(), indent=1) if options.json else walk)


def _no_traces(found: str) -> str:
    return (
        f"found {found}, expected the folder of a recording: profiler traces are not read yet, "
        "record the job with ddpviz.attach"
    )
