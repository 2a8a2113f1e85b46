"""``ddpviz claims``: what is said about DDP, and what the installed torch does."""

from __future__ import annotations

import argparse
import dataclasses
import json

from ddpviz.cli.output import say

NAME = "claims"
SUMMARY = "what a deep dive into DDP says, our verdict on it, and what proves that"
DESCRIPTION = (
    "Print the register of claims about DDP: each with our verdict (true, true with a caveat, "
    "outdated, wrong), what is so, the versions of torch it was checked on, and the test that "
    "proves it. In a checkout, pytest tests/claims runs them all on the installed torch."
)
EXAMPLE = "ddpviz claims --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(options: argparse.Namespace) -> None:
    from ddpviz.demonstrations import demonstrations
    from ddpviz.explain import claims, installed, text

    shown: dict[str, list[str]] = {}
    for one in demonstrations():
        for claim_id in one.claims:
            shown.setdefault(claim_id, []).append(one.name)
    if options.json:
        found = {
            "torch_installed": installed().version,
            "claims": [
                {**dataclasses.asdict(claim), "demonstrations": shown.get(claim.id, [])}
                for claim in claims()
            ],
        }
        print(json.dumps(found, indent=1))
        return
    say(text.claims(claims(), installed().version, shown))
