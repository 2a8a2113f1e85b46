"""Collectives that do not match, and what everyone waits for at the end."""

from __future__ import annotations

import os
import re
import socket
import time
from collections import Counter
from collections.abc import Iterator

import numpy as np

from ddpviz.analysis.audit.case import Case, apart, on
from ddpviz.analysis.audit.findings import Finding, Severity
from ddpviz.analysis.naming import collective_name
from ddpviz.analysis.tables import among
from ddpviz.analysis.units import format_bytes
from ddpviz.analysis.waiting import waiting
from ddpviz.analysis.waiting.scene import Scene, sizes_differ
from ddpviz.events import Cause, Flag, Process, Stall

#: How long a collective may be open before that is a failure, and no note.
_LONG_S = 60.0
#: How names of collectives of DDP's constructor end.
_OF_CONSTRUCTION = ("(verify)", "(initial state)")
#: What is launched in an order that the program gives.
_IN_ORDER = (Cause.BUCKET, Cause.BUFFERS, Cause.USER)
_BUCKET = re.compile(r"\(bucket \d+\)$")
#: Findings that say why ranks wait at the end.
_EXPLAINED = (
    "mismatched-collectives",
    "rank-failed",
    "step-counts",
    "backward-skipped",
    "debug-detail",
)
#: Findings that say why a bucket is waited for: a rank's own never completed, or is another one.
_OF_BUCKETS = (
    "bucket-incomplete",
    "static-graph-broken",
    "parameter-replaced",
    "models-differ",
    "configurations-differ",
)


def mismatched(case: Case) -> Iterator[Finding]:
    """At one place of a group's order ranks launched different operations, or sizes."""
    scene = Scene(case.source)
    known = np.flatnonzero(scene.keys >= 0)
    order = known[np.lexsort((scene.calls["begin_ns"][known], scene.keys[known]))]
    keys = scene.keys[order]
    told: set[int] = set()
    for first, last in _runs(keys):
        cluster = int(keys[first]) >> 48
        at = order[first:last]
        if cluster in told or not _differ(scene, at):
            continue
        told.add(cluster)
        calls = {int(scene.calls["rank"][one]): scene.calls[one] for one in at}
        names = {rank: _said(case, call) for rank, call in calls.items()}
        earliest = min(calls.values(), key=lambda call: int(call["begin_ns"]))
        # Where sizes are alike, what was summed is a mixture, and nobody complains.
        mixed = _of_other_order(scene.calls[at]) and bool((scene.calls[at]["end_ns"] > 0).all())
        modules = {int(one["module"]) for one in calls.values() if one["cause"] == Cause.BUCKET}
        yield Finding(
            "mismatched-collectives",
            Severity.WRONG_NUMBERS if mixed else Severity.FAILURE,
            "ranks are in different collectives at the same place: "
            + "; ".join(f"rank {rank} in {name}" for rank, name in sorted(names.items())),
            case.since(int(earliest["rank"]), int(earliest["step"]), int(earliest["begin_ns"])),
            apart(names),
            tuple(dict.fromkeys(names[rank] for rank in sorted(names))),
            f"number {int(earliest['sequence'])} of their process group, on {on(names)}",
            "a collective that not all ranks call, or that they call in another order: in an if "
            "on the rank, in a callback, in an evaluation of one rank",
            "call collectives on all ranks in the same order, or give those of a few ranks a "
            "process group of their own",
            "certain",
            "timeline",
            int(earliest["step"]) if earliest["step"] >= 0 else None,
            modules.pop() if len(modules) == 1 else -1,
        )


def _runs(keys: np.ndarray) -> list[tuple[int, int]]:
    """Begin and end of each run of equal keys with more than one."""
    ends = np.flatnonzero(np.diff(keys)) + 1
    pairs = zip([0, *ends.tolist()], [*ends.tolist(), len(keys)], strict=True)
    return [(first, last) for first, last in pairs if last - first > 1]


def _differ(scene: Scene, at: np.ndarray) -> bool:
    operations = {name for name in scene.operation[at] if name}
    if len(operations) > 1:
        return True
    if _of_other_order(scene.calls[at]):
        return True
    name = next(iter(operations), "")
    return any(sizes_differ(scene.calls[at[0]], scene.calls[one], name) for one in at[1:])


def _of_other_order(calls: np.ndarray) -> bool:
    """Whether they are alike by operation and size and are for something else by rank: another
    bucket, or one rank's own collective beside another's bucket. What Join sends in the place of
    another rank's is meant to be there, and what hooks send may overtake each other."""
    if not among(calls["cause"], *_IN_ORDER).all() or (calls["flags"] & Flag.FROM_HOOK).any():
        return False
    buckets = calls[calls["cause"] == Cause.BUCKET]["index"]
    return len(np.unique(calls["cause"])) > 1 or (
        len(np.unique(buckets)) > 1 and bool((buckets >= 0).all())
    )


def _said(case: Case, call: np.void) -> str:
    size = f", {format_bytes(int(call['bytes']))}" if call["bytes"] > 0 else ""
    return f"{collective_name(case.source, call)}{size}"


def _over(case: Case) -> bool:
    """Whether the job ended hanging: a process is not there any more, which only its own host can
    tell, or none was heard of for long."""
    here = socket.gethostname()
    latest = dict(case.notes(Process))
    if any(note.hostname == here and not _there(note.pid) for note in latest.values()):
        return True
    records = case.source.records()
    heard = max(records["begin_ns"].max(initial=0), records["end_ns"].max(initial=0))
    heard = max([int(heard), *(note.time_ns for _, note in case.notes(Stall))])
    return time.time_ns() - heard >= _LONG_S * 1e9


def _there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True


def _explains(case: Case, one: Finding, late: set[int]) -> bool:
    """Whether a finding says why these ranks do not come to a bucket at the end of the run."""
    if one.kind not in _OF_BUCKETS:
        return False
    if one.since_step < 0:
        return True  # models or arguments that differ
    last = int(case.recorded_steps[-1]) if len(case.recorded_steps) else -1
    # The rank that leaves it out may be in its next step already.
    return one.since_step >= last - 1 and late <= set(one.ranks) < set(case.ranks)


def hang(case: Case, found: list[Finding]) -> Iterator[Finding]:
    """What everyone waits for, where that lasted or can never end; unless it was said why."""
    if any(one.kind in _EXPLAINED for one in found):
        return
    if case.cut:
        return
    held = waiting(case.source)
    late = [one for one in held.ranks if one.state != "in it"]
    for_ever = any(one.state in ("failed", "had ended") for one in late)
    noted = any(one.state == "in it" and one.at is not None for one in held.ranks)
    if not held.ranks or not (for_ever or noted):
        return
    inside = [one for one in held.ranks if one.state == "in it"]
    building = all(one.collective.endswith(_OF_CONSTRUCTION) for one in inside)
    if inside and building and any(one.kind == "models-differ" for one in found):
        return  # the constructor refuses them on one rank, and waits on another
    in_buckets = inside and all(_BUCKET.search(one.collective) for one in inside)
    if in_buckets and any(_explains(case, one, {each.rank for each in late}) for one in found):
        return
    states = Counter(one.state for one in held.ranks)
    step = int(case.recorded_steps[-1]) if len(case.recorded_steps) else -1
    yield Finding(
        "hang",
        Severity.FAILURE
        if for_ever or max(one.for_s for one in held.ranks) >= _LONG_S or _over(case)
        else Severity.NOTE,
        held.reason,
        step,
        tuple(one.rank for one in late) or tuple(one.rank for one in held.ranks),
        tuple(dict.fromkeys(one.collective for one in inside)),
        "at the end of what was recorded: "
        + ", ".join(f"{count} {state}" for state, count in states.items()),
        "a rank with fewer batches, that evaluates or saves alone, or that takes another branch"
        if late
        else "the network, or a rank that is recorded and not heard of any more",
        "see what the rank that is missing does at its line; Join, or the same number of batches "
        "on all ranks, where data is uneven",
        "certain" if for_ever else "likely",
        "timeline",
        step if step >= 0 else None,
    )
