"""``ddpviz claims``: what is said about DDP, and what the installed torch does."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import json

from ddpviz.cli.errors import CommandError
from ddpviz.cli.output import say

NAME = "claims"
SUMMARY = "what a deep dive into DDP says, our verdict on it, and what proves that"
DESCRIPTION = (
    "Print the register of claims about DDP: each with our verdict (true, true with a caveat, "
    "outdated, wrong), what is so, the versions of torch it was checked on, and the test that "
    "proves it. In a checkout, pytest tests/claims runs them all on the installed torch."
)
EXAMPLE = "ddpviz claims small-first-bucket --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("claims", nargs="*", metavar="CLAIM", help="its id (all of them)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(options: argparse.Namespace) -> None:
    from ddpviz.demonstrations import demonstrations
    from ddpviz.explain import claims, installed, text

    known = {one.id: one for one in claims()}
    for wanted in options.claims:
        if wanted not in known:
            near = difflib.get_close_matches(wanted, known, 1)
            expected = f"did you mean {near[0]!r}?" if near else "ddpviz claims lists them"
            raise CommandError(f"found no claim {wanted!r}: {expected}")
    chosen = tuple(known[one] for one in dict.fromkeys(options.claims)) or claims()
    shown: dict[str, list[str]] = {}
    for one in demonstrations():
        for claim_id in one.claims:
            shown.setdefault(claim_id, []).append(one.name)
    if options.json:
        found = {
            "torch_installed": installed().version,
            "claims": [
                {**dataclasses.asdict(claim), "demonstrations": shown.get(claim.id, [])}
                for claim in chosen
            ],
        }
        print(json.dumps(found, indent=1))
        return
    say(text.claims(chosen, installed().version, shown))
