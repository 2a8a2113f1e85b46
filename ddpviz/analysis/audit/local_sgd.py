"""Ranks that train on their own on purpose, and average their parameters now and then."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np

from ddpviz.analysis.audit.case import Case, listed, times
from ddpviz.analysis.audit.findings import Finding, Severity
from ddpviz.analysis.audit.moments import steps_equal
from ddpviz.analysis.calls import of_buckets
from ddpviz.analysis.naming import label_texts
from ddpviz.analysis.places import places
from ddpviz.analysis.units import format_bytes
from ddpviz.events import Cause, Flag, Kind

#: Hooks of torch that average among some ranks only on purpose, from some step on.
_HOOKS = ("post_localSGD",)
#: Findings of gradients that were not averaged, which local SGD does not mean to do.
_UNAVERAGED = ("no-sync-step", "wrapper-bypassed", "backward-unreduced")


@dataclasses.dataclass(frozen=True)
class Averagings:
    """All-reduces of the program's own with about as many bytes as a module's parameters, all
    between two steps of an optimizer; on the rank that has fewest. ``bytes``: of one."""

    count: int
    bytes: int


def hook_at(case: Case, module: int, step: int) -> str:
    """The comm hook that averages inside groups of some ranks only in this step, "" for none."""
    rank = min(case.modules.get(module, {}), default=-1)
    values = case.configuration(rank, module)
    hook = str(values.get("comm_hook") or "")
    if not hook or any(one in hook for one in _HOOKS):
        return hook
    sent = of_buckets(case.evidence.calls)
    sent = sent[(sent["module"] == module) & (sent["step"] == step)]
    if not len(sent) or not ((sent["flags"] & Flag.FROM_HOOK) != 0).all():
        return ""
    known = places(case.source)
    cluster = known.cluster[sent["rank"], sent["group"]]
    world = int(values.get("world_size", len(case.ranks)))
    inside = (cluster >= 0) & (known.sizes[cluster] < world)
    # Averaged inside groups and then among them, all ranks have the same.
    several = len({(int(one["rank"]), int(one["index"])) for one in sent}) < len(sent)
    return hook if inside.all() and not several else ""


def averagings(case: Case, module: int, step: int) -> Averagings:
    """Since the step began."""
    calls = case.evidence.calls
    own = calls[calls["cause"] == Cause.USER]
    texts, at = label_texts(case.source, own)
    reduces = np.array([text.startswith("allreduce") for text in texts], bool)
    own = own[reduces[at]] if len(own) else own
    optimizer = case.source.records(kinds=Kind.OPTIMIZER)
    counts, size = [], 0
    for rank, note in case.modules.get(module, {}).items():
        whole = sum(one.bytes for one in note.parameters)
        begun = _begun(case, rank, step)
        mine = own[(own["rank"] == rank) & (own["begin_ns"] >= begun)]
        stepped = np.sort(optimizer["begin_ns"][optimizer["rank"] == rank])
        between = np.searchsorted(stepped, mine["begin_ns"])
        sums = np.bincount(between, mine["bytes"]) if len(mine) else np.zeros(0)
        whole_sums = sums[2 * sums >= whole] if whole else sums[:0]
        counts.append(len(whole_sums))
        size = int(whole_sums[0]) if len(whole_sums) else size
    return Averagings(min(counts, default=0), size)


def _begun(case: Case, rank: int, step: int) -> int:
    forward = case.source.records(kinds=Kind.FORWARD, ranks=rank)
    forward = forward[forward["step"] >= step]
    return int(forward["begin_ns"].min()) if len(forward) else 0


def softened(case: Case, found: Iterable[Finding]) -> list[Finding]:
    """The same findings; gradients that were not averaged, as a note where the program averages
    something as large as the parameters later: that cannot be told from a mistake for certain."""
    return [_softened(case, one) if one.kind in _UNAVERAGED else one for one in found]


def _softened(case: Case, found: Finding) -> Finding:
    own = averagings(case, found.module, found.since_step)
    if not own.count or not set(case.modules.get(found.module, {})) <= set(found.ranks):
        return found
    equal = [step for step in steps_equal(case, found.module, found.since_step) if step >= 0]
    seen = ""
    if equal:
        seen = f"; parameters were equal again at the end of step {listed(map(str, equal))}"
    return dataclasses.replace(
        found,
        severity=Severity.NOTE,
        evidence=f"{found.evidence}; the program's own all-reduces of {format_bytes(own.bytes)} "
        f"came {times(own.count, 'time')} from then on{seen}",
        cause="local SGD, where these all-reduces average the parameters: each rank trains on its "
        f"own in between. If they do not: {found.cause}",
        remedy="none for local SGD: the replicas are equal after each averaging only, so save and "
        f"evaluate there. Else: {found.remedy}",
        sure="possible",
    )
