"""Where the audit's findings show in a step: a flag on each rank, at what the finding names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ddpviz.analysis.audit import Finding
from ddpviz.events import Kind
from ddpviz.views.columns import Row
from ddpviz.views.lanes import Lane, Lanes
from ddpviz.views.source import StepSource

_BUCKET = re.compile(r"bucket (\d+)$")
#: Of a bucket, the best known first.
_TIMES = ("launched_ns", "full_ns", "first_ready_ns")


def flagged(findings: Iterable[Finding], step: int | None) -> tuple[Finding, ...]:
    """Those that a step shows: it is their first, or the one to look at."""
    return tuple(one for one in findings if step in (one.since_step, one.view_step))


def flag_rows(source: StepSource, lanes: Lanes, findings: Iterable[Finding]) -> list[Row]:
    """A flag on each lane that shows a finding, or several.

    At the bucket that it names, by number or by a parameter, when that was launched; one about
    buffers at their broadcast; else where the rank's backward ends.
    """
    here: dict[tuple[int, float, float], list[Finding]] = {}
    for one in flagged(findings, source.step):
        for rank in one.ranks:
            for lane, x in _places(source, lanes, one, rank):
                here.setdefault((rank, x, lane.top), []).append(one)
    return [
        {
            "rank": rank,
            "x": x,
            "top": top,
            "head": _each(f"{one.severity.text} ({one.kind})" for one in found),
            "time": _each(one.what for one in found),
            "detail": _each(_since(one, source.step) for one in found),
        }
        for (rank, x, top), found in here.items()
    ]


def _each(texts: Iterable[str]) -> str:
    return "; ".join(text for text in dict.fromkeys(texts) if text)


def _since(found: Finding, step: int) -> str:
    if found.since_step == step:
        return "first seen in this step"
    return f"since step {found.since_step}" if found.since_step >= 0 else ""


def _places(
    source: StepSource, lanes: Lanes, found: Finding, rank: int
) -> Iterator[tuple[Lane, float]]:
    """Lanes of a rank and times in ms."""
    buckets = list(_named(source, lanes, found, rank))
    if buckets:
        yield from buckets
    elif rank in lanes.compute:
        records = source.records[source.records["rank"] == rank]
        calls = source.collectives
        sent = calls[(calls["rank"] == rank) & (calls["cause"] == "buffers")]
        if found.kind.startswith("buffers") and len(sent):
            at_ns = int(sent["launched_ns"].min())
        else:
            backward = records[records["kind"] == Kind.BACKWARD]
            last = backward if len(backward) else records
            at_ns = int(max(last["end_ns"].max(initial=0), last["begin_ns"].max(initial=0)))
        if at_ns:
            yield lanes.compute[rank], _ms(source, at_ns)


def _named(
    source: StepSource, lanes: Lanes, found: Finding, rank: int
) -> Iterator[tuple[Lane, float]]:
    """Of each bucket that a finding names, and that has a lane."""
    numbers = {int(match[1]) for name in found.names if (match := _BUCKET.search(name))}
    table = source.buckets
    for row in table[table["rank"] == rank]:
        module, bucket = int(row["module"]), int(row["bucket"])
        lane = lanes.buckets.get((rank, module, bucket))
        if lane is None or found.module not in (-1, module):
            continue
        held = _parameters(source, rank, module, int(row["plan_version"]), bucket)
        if bucket in numbers or not held.isdisjoint(found.names):
            known = (int(row[name]) for name in _TIMES)
            at_ns = next((at_ns for at_ns in known if at_ns > 0), 0)
            if at_ns:
                yield lane, _ms(source, at_ns)


def _parameters(source: StepSource, rank: int, module: int, version: int, bucket: int) -> set[str]:
    """Names in a bucket; none where the plan is not known."""
    plan = source.plans.get((rank, module, version))
    of = source.modules.get((rank, module))
    if plan is None or of is None or bucket >= len(plan.buckets):
        return set()
    return {of.parameters[index].name for index in plan.buckets[bucket].parameters}


def _ms(source: StepSource, at_ns: int) -> float:
    return (at_ns - source.zero_ns) / 1e6
