"""``ddpviz audit``: what is wrong with a recorded run; exit status 1 where anything is."""

from __future__ import annotations

import argparse
import json

from ddpviz.cli.output import say
from ddpviz.cli.reading import add_recording, read_recording

NAME = "audit"
SUMMARY = "a recording: what is wrong with the run, worst first"
DESCRIPTION = (
    "Say what is wrong with a recorded run: gradients that are not averaged, replicas that part, "
    "what costs time. Exit status 1 where there are findings, 0 where there are none."
)
EXAMPLE = "ddpviz audit runs/first --json"

#: Exit status where there are findings.
FOUND = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recording(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(options: argparse.Namespace) -> None:
    from ddpviz.analysis.audit import audit, not_checked
    from ddpviz.cli.findings import text

    recording = read_recording(options)
    found, unchecked = audit(recording), not_checked(recording)
    options.status = FOUND if found else 0
    if options.json:
        told = {
            "recording": str(options.recording),
            "ranks": recording.ranks,
            "findings": [one.as_json() for one in found],
            "complete": not unchecked,
            "not_checked": [{"kind": one.kind, "why": one.why} for one in unchecked],
            "remarks": list(recording.remarks),
        }
        print(json.dumps(told, indent=1))
    else:
        say(text(found, unchecked, recording.remarks))
        say(f"recording  {options.recording}")
