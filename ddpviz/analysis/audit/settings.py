"""Settings that cost and bring nothing, traps of the environment, ranks that end at odds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddpviz.analysis.audit.case import Case, apart, listed, on, times
from ddpviz.analysis.audit.findings import Finding, Severity
from ddpviz.analysis.naming import collective_name
from ddpviz.analysis.units import format_bytes
from ddpviz.events import (
    Cause,
    Ended,
    Environment,
    Failure,
    Flag,
    Group,
    Kind,
    Process,
    Strides,
    Unavailable,
    Unused,
)

#: Backwards in which nothing was unused, before the search is called needless.
_SEARCHES = 10
#: Of a module's gradients that lie otherwise than their buckets: share and bytes worth a word.
_SHARE, _WORTH_BYTES = 0.01, 256 * 1024


def unused_search(case: Case) -> Iterator[Finding]:
    """find_unused_parameters, and every parameter was used in every backward."""
    maps = case.evidence.calls
    maps = maps[maps["cause"] == Cause.USED_MAP]
    cannot = {
        note.module for _, note in case.notes(Unavailable) if note.what == "unused parameters"
    }
    some = {note.module for _, note in case.notes(Unused) if note.parameters}
    for module, notes in case.modules.items():
        if module in some or module in cannot:
            continue
        mine = maps[maps["module"] == module]
        many = [int((mine["rank"] == rank).sum()) for rank in notes]
        values = case.configuration(min(notes), module)
        if not values.get("find_unused_parameters") or values.get("static_graph"):
            continue
        if min(many, default=0) < _SEARCHES:
            continue
        yield Finding(
            "unused-search",
            Severity.SLOW,
            f"find_unused_parameters=True{case.of(module)} searches in every forward, and every "
            "parameter was used every time",
            int(mine["step"].min()),
            tuple(sorted(notes)),
            ("find_unused_parameters",),
            f"in {times(min(many), 'backward')} of each rank no parameter was unused; each walked "
            "the autograd graph, sent the map of used parameters, and kept the first bucket plan, "
            "which DDP does not rebuild then",
            "the option was switched on to end an error, or for another model",
            "switch it off; where an unused parameter comes back, DDP says so",
            "certain",
            "plan",
            None,
            module,
        )


def gradient_layout(case: Case) -> Iterator[Finding]:
    """Gradients that lie otherwise in memory than in their bucket."""
    latest: dict[int, dict[int, Strides]] = {}
    for rank, note in case.notes(Strides):
        latest.setdefault(note.module, {})[rank] = note
    for module, notes in latest.items():
        ranks = tuple(sorted(rank for rank, note in notes.items() if note.names))
        if not ranks:
            continue
        note = notes[ranks[0]]
        described = case.modules.get(module, {}).get(ranks[0])
        whole = sum(one.bytes for one in described.parameters) if described else 0
        if note.bytes < max(_SHARE * whole, _WORTH_BYTES):
            continue
        yield Finding(
            "gradient-layout",
            Severity.SLOW,
            f"gradients of {listed(note.names)}{case.of(module)} lie otherwise in memory than in "
            f"their bucket: {format_bytes(note.bytes)} are copied element by element",
            note.step,
            ranks,
            note.names,
            f"their strides differ from the bucket's after the backward of step {note.step}; that "
            f"is {100 * note.bytes / whole if whole else 100:.0f} % of all gradients",
            "the model's memory format was changed after wrapping (channels_last), or parameters "
            "are transposed or expanded tensors",
            "change the memory format before wrapping, and make parameters contiguous",
            "certain",
            "finalize",
            note.step,
            module,
        )


def debug_detail(case: Case) -> Iterator[Finding]:
    """TORCH_DISTRIBUTED_DEBUG=DETAIL on gloo, where DDP's constructor crashes."""
    found = {
        rank: note
        for rank, note in case.notes(Environment)
        if str(note.values.get("TORCH_DISTRIBUTED_DEBUG", "")).upper() == "DETAIL"
    }
    if not found:
        return
    backends = {note.backend for _, note in case.notes(Group)}
    devices = {note.device for _, note in case.notes(Process)}
    gloo = any("gloo" in one for one in backends) or (not backends and devices == {"cpu"})
    if not gloo:
        return
    yield Finding(
        "debug-detail",
        Severity.FAILURE,
        f"TORCH_DISTRIBUTED_DEBUG=DETAIL is set on {on(found)}, and the process group is gloo",
        -1,
        tuple(sorted(found)),
        ("TORCH_DISTRIBUTED_DEBUG",),
        "the environment of the recorded processes has it",
        "left over from a search for a hang; DDP's constructor crashes with it on gloo (a "
        "segmentation fault, torch 2.13), and every collective is checked by two more",
        "unset it, or use INFO",
        "certain",
    )


def step_counts(case: Case) -> Iterator[Finding]:
    """Ranks that all ended in order, or hang, after different numbers of steps, without Join."""
    if len(case.ranks) < 2 or case.joined:
        return
    # A step that did not end counts where it sent something: a forward alone may be anything.
    begun_in = case.evidence.calls
    begun_in = begun_in[begun_in["cause"] != Cause.USER]
    last = {
        rank: max(
            int(case.steps["step"][case.steps["rank"] == rank].max(initial=-1)),
            int(begun_in["step"][begun_in["rank"] == rank].max(initial=-1)),
        )
        for rank in case.ranks
    }
    if len(set(last.values())) < 2:
        return
    fewest, most = min(last.values()), max(last.values())
    early = tuple(sorted(rank for rank, step in last.items() if step == fewest))
    begun = {rank: note.started_ns for rank, note in case.notes(Process)}
    ended = {rank for rank, note in case.notes(Ended) if note.time_ns >= begun.get(rank, 0)}
    failed = {rank for rank, note in case.notes(Failure) if note.time_ns >= begun.get(rank, 0)}
    if failed & set(early) or case.cut:
        return
    if not set(early) <= ended or (not set(case.ranks) <= ended and not _waits(case, early)):
        return
    ranks = apart(last)
    counts = ", ".join(f"{last[rank] + 1} on rank {rank}" for rank in case.ranks)
    yield Finding(
        "step-counts",
        Severity.FAILURE,
        f"ranks took different numbers of steps: {counts}",
        fewest + 1,
        ranks,
        _not_entered(case, early, fewest),
        f"{on(early)} ended in order after step {fewest}, and others went on to step {most}",
        "the ranks' batches do not come to the same number: an uneven split, bad samples that are "
        "dropped, an early stop that depends on the rank",
        "give every rank the same number (DistributedSampler, drop_last=True), or train inside "
        "torch.distributed.algorithms.join.Join",
        "certain",
        "timeline",
        most,
    )


def _not_entered(case: Case, early: tuple[int, ...], last: int) -> tuple[str, ...]:
    """The first collective that others launched after the last step of those that ended early."""
    calls = case.evidence.calls
    beyond = calls[~np.isin(calls["rank"], early) & (calls["step"] > last)]
    beyond = beyond[beyond["cause"] != Cause.USER]
    if not len(beyond):
        return ()
    return (collective_name(case.source, beyond[np.argmin(beyond["begin_ns"])]),)


def _waits(case: Case, early: tuple[int, ...]) -> bool:
    """Whether another rank is in a collective that those never entered, or failed in one."""
    calls = case.evidence.calls
    others = calls[~np.isin(calls["rank"], early)]
    failed = case.source.records(kinds=(Kind.BACKWARD, Kind.FORWARD, Kind.FAILED))
    failed = failed[(failed["kind"] == Kind.FAILED) | ((failed["flags"] & Flag.FAILED) != 0)]
    return bool((others["end_ns"] == 0).any()) or bool((~np.isin(failed["rank"], early)).any())
