"""What costs time in most steps, with a margin: a noisy machine and a small model are no finding.

Of each module the first steps are left out: DDP rebuilds its buckets there, and compiles.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator

import numpy as np

from ddpviz.analysis.audit.case import Case, times
from ddpviz.analysis.audit.findings import Finding, Severity
from ddpviz.analysis.bursts import bursts
from ddpviz.analysis.calls import Unsplit
from ddpviz.analysis.graphs import borders
from ddpviz.analysis.naming import bucket_name
from ddpviz.analysis.steps import steps
from ddpviz.analysis.units import format_bytes, format_duration
from ddpviz.events import Cause, Compiled

#: Steps at the beginning that say nothing, and those that there have to be after them.
_WARM_UP, _STEPS = 3, 10
#: Share of these steps that have to show it.
_MOST = 0.75
#: Exposed communication: share of a step, and the time below which nobody would notice.
_EXPOSED_SHARE, _EXPOSED_MS = 0.3, 10.0
#: A bucket that waits for its turn: share of the step, and the least that counts.
_TURN_SHARE, _TURN_MS = 0.1, 2.0
#: A rank that comes last: in this share of steps, by this share of a step, and the least time.
_LAST, _LATE_SHARE, _LATE_MS = 0.9, 0.15, 5.0
#: Gradients below this are too few for their order or their graph to matter.
_WORTH_BYTES = 1 << 20
#: Share of the gradients that must wait for a later graph.
_CROSSING = 0.25


def bursts_without_overlap(case: Case) -> Iterator[Finding]:
    """All gradients of a compiled model come at once, in several buckets."""
    found: dict[int, list[tuple[int, int, str]]] = {}
    for one in bursts(case.source):
        found.setdefault(one.module, []).append((one.step, one.rank, one.why))
    for module, of_module in found.items():
        plan = case.evidence.buckets
        plan = plan[(plan["module"] == module) & (plan["rank"] == plan["rank"].min(initial=0))]
        bursting = sorted({step for step, _, _ in of_module if step >= 0})
        late = plan[np.isin(plan["step"], bursting)]
        many = collections.Counter(late["step"].tolist())
        here = [step for step in bursting if many[step] > 1]
        if len(here) < _WARM_UP or late["bytes"][late["step"] == here[-1]].sum() < _WORTH_BYTES:
            continue
        nbytes = int(late["bytes"][late["step"] == here[-1]].sum())
        yield Finding(
            "burst",
            Severity.SLOW,
            f"all gradients{case.of(module)} come at once at the end of backward, so of "
            f"{format_bytes(nbytes)} in {many[here[-1]]} buckets next to nothing is sent while it "
            "computes",
            here[0],
            tuple(sorted({rank for _, rank, _ in of_module})),
            case.buckets(module, here[-1]),
            f"{of_module[-1][2]}; so in {times(len(here), 'step')}",
            "the model is compiled as one graph, whose backward is one node of autograd",
            'compile what DDP wraps with torch._dynamo.config.optimize_ddp = "ddp_optimizer" and '
            "bucket caps below the model's size, or compile its blocks one by one",
            "certain",
            "compile",
            here[-1],
            module,
        )


def borders_disagree(case: Case) -> Iterator[Finding]:
    """A graph hands over gradients whose bucket only a later graph fills."""
    if not any(case.source.notes(Compiled, rank=rank) for rank in case.ranks):
        return
    table = borders(case.source)
    for module in sorted(set(table["module"].tolist())):
        rows = table[table["module"] == module]
        rank = int(rows["rank"].min())
        rows = rows[rows["rank"] == rank]
        whole = int(rows["bytes"].sum())
        if rows["graph"].nunique() < 2 or rows["bucket"].nunique() < 2 or whole < _WORTH_BYTES:
            continue
        waiting = rows[~rows["completes"]]
        share = waiting["bytes"].sum() / whole
        if share < _CROSSING:
            continue
        yield Finding(
            "borders",
            Severity.SLOW,
            f"the compiled graphs{case.of(module)} end elsewhere than the buckets: "
            f"{100 * share:.0f} % of the gradients wait for a later graph",
            0,
            tuple(sorted(set(table["rank"]))),
            tuple(f"bucket {one}" for one in sorted(set(waiting["bucket"]))),
            f"{format_bytes(int(waiting['bytes'].sum()))} of {format_bytes(whole)} are handed over "
            f"by a graph that does not complete their bucket, of {rows['graph'].nunique()} graphs "
            f"and {rows['bucket'].nunique()} buckets",
            "DDPOptimizer begins with a limit of torch.distributed._DEFAULT_FIRST_BUCKET_BYTES "
            "(1 MiB), the Reducer, once bucket_cap_mb is given, with that",
            "set torch.distributed._DEFAULT_FIRST_BUCKET_BYTES to bucket_cap_mb's bytes before "
            "wrapping, or leave bucket_cap_mb out",
            "certain",
            "compile",
            None,
            module,
        )


def _steady(case: Case) -> tuple[dict[tuple[int, int], float], list[int]]:
    """The length in ms of each (step, rank), and steps that all ranks have ended, warm."""
    ended = case.steps
    lengths = {
        (int(row["step"]), int(row["rank"])): (int(row["end_ns"]) - int(row["begin_ns"])) / 1e6
        for row in ended
    }
    by_step = collections.Counter(step for step, _ in lengths)
    known = sorted(step for step, many in by_step.items() if many == len(case.ranks))
    return lengths, known[_WARM_UP:]


def head_of_line(case: Case) -> Iterator[Finding]:
    """A bucket is full and cannot be sent, as one before it is not."""
    lengths, known = _steady(case)
    if len(known) < _STEPS:
        return
    rows = case.evidence.buckets
    rows = rows[np.isin(rows["step"], known) & np.isfinite(rows["head_of_line_ms"])]
    groups: dict[tuple[int, int], list[tuple[int, int, float, float]]] = {}
    for row in rows:
        at = int(row["step"]), int(row["rank"])
        groups.setdefault((int(row["module"]), int(row["bucket"])), []).append(
            (*at, float(row["head_of_line_ms"]), lengths[at])
        )
    worst: dict[int, tuple[float, int, list[tuple[int, int, float, float]]]] = {}
    for (module, bucket), found in groups.items():
        waits = [one for one in found if one[2] >= max(_TURN_MS, _TURN_SHARE * one[3])]
        if len(waits) < _MOST * len(known) * len(case.ranks):
            continue
        typical = float(np.median([one[2] for one in waits]))
        if typical > worst.get(module, (0.0, 0, []))[0]:
            worst[module] = typical, bucket, waits
    for module, (typical, bucket, waits) in worst.items():
        unused = case.configuration(waits[0][1], module).get("find_unused_parameters")
        yield Finding(
            "head-of-line",
            Severity.SLOW,
            f"bucket {bucket}{case.of(module)} is full and waits {format_duration(typical * 1e6)} "
            "for its turn, as a bucket before it is not",
            min(one[0] for one in waits),
            tuple(sorted({one[1] for one in waits})),
            (f"bucket {bucket}",),
            f"so in {times(len({one[0] for one in waits}), 'step')} of {len(known)}, by the "
            "Reducer's own times",
            "buckets are sent in their order, and gradients do not come in it: "
            + (
                "with find_unused_parameters DDP keeps the order of registration"
                if unused
                else "the order of another iteration, or a parameter that is used late and early"
            ),
            "register layers in the order in which they are used, or switch "
            "find_unused_parameters off so that DDP rebuilds its buckets",
            "likely",
            "countdown",
            waits[-1][0],
            module,
        )


def exposed_communication(case: Case) -> Iterator[Finding]:
    """A large share of most steps is spent waiting for collectives, and not for a rank."""
    _, known = _steady(case)
    if len(known) < _STEPS:
        return
    table = steps(case.source)
    table = table[table["step"].isin(known) & table["exposed_communication_ms"].notna()]
    if table.empty or table["bucket_bytes"].median() < _WORTH_BYTES:
        return
    waited = _waited_ms(case)
    rows = [
        (int(step), int(rank), exposed - min(waited.get((int(step), int(rank)), 0.0), exposed), ms)
        for step, rank, exposed, ms in zip(
            table["step"], table["rank"], table["exposed_communication_ms"], table["step_ms"],
            strict=True,
        )
    ]  # fmt: skip
    shown = [one for one in rows if one[2] >= max(_EXPOSED_MS, _EXPOSED_SHARE * one[3])]
    if len(shown) < _MOST * len(known) * len(case.ranks):
        return
    share = float(np.median([one[2] / one[3] for one in shown]))
    typical = float(np.median([one[2] for one in shown]))
    nbytes = int(table["bucket_bytes"].median())
    yield Finding(
        "exposed-communication",
        Severity.SLOW,
        f"{100 * share:.0f} % of a step is spent waiting for collectives to finish: "
        f"{format_duration(typical * 1e6)}",
        min(one[0] for one in shown),
        tuple(sorted({one[1] for one in shown})),
        _last_back(case, {one[:2] for one in shown}),
        f"so in {times(len({one[0] for one in shown}), 'step')} of {len(known)}, waiting for a "
        f"late rank not counted; {format_bytes(nbytes)} are reduced per step",
        "the network is slow for what is sent, or there is too little backward to hide it behind",
        "send less (a compressing comm hook, gradient accumulation in no_sync), or send earlier "
        "(smaller buckets)",
        "likely",
        "overlap",
        None,
    )


def _last_back(case: Case, shown: set[tuple[int, int]]) -> tuple[str, ...]:
    """The bucket that most often came back last, of these (step, rank)."""
    rows = case.evidence.buckets
    rows = rows[rows["done_ns"] > 0]
    latest: dict[tuple[int, int], np.void] = {}
    for row in rows[np.argsort(rows["done_ns"], kind="stable")]:
        key = int(row["step"]), int(row["rank"])
        if key in shown:
            latest[key] = row
    last = {(int(row["module"]), int(row["bucket"])): row for row in latest.values()}
    counted = collections.Counter(
        (int(row["module"]), int(row["bucket"])) for row in latest.values()
    )
    return tuple(bucket_name(case.source, last[one]) for one, _ in counted.most_common(1))


def _waited_ms(case: Case) -> dict[tuple[int, int], float]:
    """By step and rank: the longest wait for a rank in one bucket, as they overlap."""
    rows = case.evidence.buckets
    rows = rows[np.isfinite(rows["wait_for_rank_ms"])]
    found: dict[tuple[int, int], float] = {}
    for row in rows:
        key = int(row["step"]), int(row["rank"])
        found[key] = max(found.get(key, 0.0), float(row["wait_for_rank_ms"]))
    return found


def straggler(case: Case) -> Iterator[Finding]:
    """One rank launches last in nearly all steps, by a margin: the others wait for it."""
    lengths, known = _steady(case)
    if len(known) < _STEPS or len(case.ranks) < 2:
        return
    calls, who = case.evidence.calls, case.evidence.arrivals
    matched = np.isin(calls["cause"], (Cause.BUCKET, Cause.BUFFERS))
    matched &= (who.unsplit == Unsplit.SPLIT) & (who.last_rank >= 0) & np.isin(calls["step"], known)
    by_step: dict[int, dict[tuple[int, str], tuple[float, int]]] = {}
    for at in np.flatnonzero(matched).tolist():
        row = calls[at]
        late_ms = (int(who.last_launched_ns[at]) - int(row["begin_ns"])) / 1e6
        name = f"bucket {row['index']}" if row["cause"] == Cause.BUCKET else "the buffers"
        here = by_step.setdefault(int(row["step"]), {})
        key = int(row["sequence"]), name
        if late_ms >= here.get(key, (-1.0, -1))[0]:
            here[key] = late_ms, int(who.last_rank[at])
    late: dict[int, list[tuple[int, float, str]]] = {}
    for step, here in by_step.items():
        worst, rank = max(here.values())
        length = max(lengths[step, of] for of in case.ranks)
        if worst < max(_LATE_MS, _LATE_SHARE * length):
            continue
        # The first collective at which it was late by much: what came before it took the time.
        first = next(
            name
            for (_, name), (late_ms, last) in sorted(here.items())
            if last == rank and late_ms >= worst / 2
        )
        late.setdefault(rank, []).append((step, worst, first))
    for rank, found in late.items():
        if len(found) < _LAST * len(known):
            continue
        where, often = collections.Counter(one[2] for one in found).most_common(1)[0]
        typical = float(np.median([one[1] for one in found]))
        yield Finding(
            "straggler",
            Severity.SLOW,
            f"rank {rank} is late by {format_duration(typical * 1e6)} in {len(found)} of "
            f"{len(known)} steps, and the others wait for it; most often first at {where}",
            min(one[0] for one in found),
            (rank,),
            (where,),
            f"launches of the same collective were compared: {where} was where it began in "
            f"{times(often, 'step')}; that is no slow network, which makes no rank late",
            "that rank has more to do (longer samples, slower loading, another job or a slower "
            "device beside it)",
            f"look at what rank {rank} does before {where}: load and preprocess evenly, and give "
            "it the same device",
            "likely",
            "timeline",
            found[-1][0],
        )
