"""What needs no change: only what the trace shows, not what it doesn't have."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ddpviz import analysis
from ddpviz.analysis.units import format_duration
from ddpviz.events import Cause
from ddpviz.explain.story.cost import LITTLE, Cost, counted
from ddpviz.explain.story.facts import Facts


def fine(here: Facts, found: list[Cost]) -> list[str]:
    """Sentences."""
    known = {cost.name: cost for cost in found}
    told = list(_communication(here, known))
    causes = {one.cause for one in here.run.collectives if one.step in here.steps}
    forwards = [it for it in here.run.phases.iterations if it.step in here.steps]
    if Cause.BUFFERS in causes:
        told.append(
            "the broadcasts before each forward are expected: they are DDP's sync of buffers, not "
            "a collective that somebody added"
        )
    elif forwards and here.run.collectives and Cause.UNKNOWN not in causes:
        told.append("no buffers are broadcast before a forward")
    copies = sum(cost.ms for name, cost in known.items() if name.startswith("copying"))
    if here.step_ms and 0 < copies < LITTLE * here.step_ms:
        told.append(f"copying gradients is cheap: {format_duration(copies * 1e6)} a step")
    if "searching unused parameters" not in known and any(it.backward for it in forwards):
        told.append("no time goes into a search for unused parameters")
    return told


def _communication(here: Facts, known: dict[str, Cost]) -> Iterator[str]:
    waited = [one.ns for one in here.waited if one.cause == Cause.BUCKET and one.step in here.steps]
    waits = known.get("waiting for buckets")
    if waited and not any(map(math.isnan, waited)) and (waits is None or waits.share < 0.05):
        yield "little time goes into waiting for buckets after backward"
    if here.share.overlap > 0.9:
        yield f"{here.share.overlap:.0%} of all communication runs while something computes"
    table = analysis.buckets(here.imported.recording)
    mine = table[(table["rank"] == here.run.rank) & table["step"].isin(here.steps)]
    line = mine["head_of_line_ms"].dropna()
    if len(line) and mine["bucket"].max() > 0 and line.max() < 0.1:
        yield "buckets go out in the order in which they fill: none waits for an earlier one"
    if len(here.run.layouts) == 1 and len(here.steps) > 1:
        plan = here.run.layouts[0]
        yield f"the bucket plan is the same in all steps: {counted(len(plan.sizes), 'bucket')}"
    worst = max((one.spread_ns for one in here.skews), default=None)
    if worst is not None and worst / 1e6 < 0.02 * here.step_ms:
        yield f"ranks come to their collectives within {format_duration(worst)} of each other"
