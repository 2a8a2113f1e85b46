"""Backwards that DDP had prepared, in which no gradient of it came and nothing was reduced."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddpviz.analysis.audit.case import Case, on, times
from ddpviz.analysis.audit.findings import Finding, Severity
from ddpviz.analysis.audit.moments import first_apart, steps_equal, unaveraged
from ddpviz.analysis.calls import of_buckets
from ddpviz.analysis.tables import SHARED_ID, find, run_keys
from ddpviz.events import Flag, Kind, Parted


def nothing_reduced(case: Case) -> Iterator[Finding]:
    """An optimizer stepped after such a backward, and nothing was reduced since the step before.

    Not told where no gradients were needed: where parameters stay equal, as far as they were
    looked at, where they are frozen, or where the program averages as many bytes by itself.
    """
    if len(case.ranks) < 2:
        return
    groups: dict[int, list[np.void]] = {}
    for rank in case.ranks:
        for row in _of_rank(case, rank):
            groups.setdefault(int(row["module"]), []).append(row)
    for module, rows in groups.items():
        ranks = tuple(sorted({int(row["rank"]) for row in rows}))
        since = min(
            case.since(int(row["rank"]), int(row["step"]), int(row["begin_ns"])) for row in rows
        )
        parted = first_apart(case, module)
        if module in case.divided or (parted is None and steps_equal(case, module, since)):
            continue
        if parted is not None and parted.step < since:
            continue
        many = max(sum(int(row["rank"]) == rank for row in rows) for rank in ranks)
        yield Finding(
            "backward-unreduced",
            Severity.WRONG_NUMBERS,
            f"an optimizer stepped{case.of(module)} with gradients that were not averaged on "
            f"{on(ranks)}: the backward brought DDP no gradient, and nothing was reduced",
            since,
            ranks,
            unaveraged(case, module, since, ranks),
            f"the forward before it had prepared a reduction, and no bucket was reduced until the "
            f"step; so in {times(many, 'step')}"
            + ("; parameters differ since" if parted is not None else ""),
            "gradients come from torch.autograd.grad, or from backward(inputs=…) of other tensors: "
            "DDP's hooks on the parameters do not run there",
            "call loss.backward() and use parameter.grad; or average what autograd.grad returns by "
            "yourself",
            "certain" if parted is not None else "likely",
            "forward_graph",
            since,
            module,
        )


def _of_rank(case: Case, rank: int) -> list[np.void]:
    """Forwards, each the last before a step of an optimizer."""
    backward = case.records(Kind.BACKWARD, rank)
    backward = backward[((backward["flags"] & Flag.FAILED) == 0) & (backward["end_ns"] > 0)]
    backward = backward[(backward["module"] < SHARED_ID) & (backward["iteration"] >= 0)]
    optimizer = np.sort(case.records(Kind.OPTIMIZER, rank)["begin_ns"])
    if not len(backward) or not len(optimizer):
        return []
    sent = of_buckets(case.evidence.calls)
    finalize = case.records(Kind.FINALIZE, rank)
    begun = np.concatenate(
        [
            run_keys(sent[sent["rank"] == rank]),
            run_keys(finalize),
            run_keys(case.records(Kind.GRAD_READY, rank)),
        ]
    )
    forward = case.records(Kind.FORWARD, rank)
    without = int(Flag.NO_SYNC | Flag.NO_GRAD | Flag.FAILED)
    forward = forward[(forward["flags"] & without) == 0]
    forward = forward[np.argsort(run_keys(forward), kind="stable")]
    quiet = backward[~np.isin(run_keys(backward), begun)]
    at = find(run_keys(forward), run_keys(quiet))
    quiet, at = quiet[at >= 0], at[at >= 0]
    reduced = np.sort(finalize["begin_ns"])
    told = _told(case, rank)
    found: dict[int, np.void] = {}
    for row, position in zip(quiet, at.tolist(), strict=True):
        step = int(np.searchsorted(optimizer, row["end_ns"]))
        if step == len(optimizer):
            continue
        # From the step before, or the forward where there is none, to this one.
        since = int(optimizer[step - 1]) if step else int(forward["begin_ns"][position])
        until = int(optimizer[step])
        if np.searchsorted(reduced, since) < np.searchsorted(reduced, until):
            continue
        module = int(row["module"])
        if (rank, module) in case.unseen or (module, until) in told:
            continue
        if _frozen(case, rank, module) or case.averaged_by_hand(rank, module, since, until):
            continue
        found[step] = forward[position]
    return list(found.values())


def _told(case: Case, rank: int) -> set[tuple[int, int]]:
    """(module, time of an optimizer's step) with gradients that a backward left unreduced."""
    rows = case.records(Kind.UNREDUCED, rank)
    return {(int(row["module"]), int(row["end_ns"])) for row in rows}


def _frozen(case: Case, rank: int, module: int) -> bool:
    """Whether every parameter is, as far as that was noted."""
    notes = [note for note in case.source.notes(Parted, rank=rank) if note.module == module]
    known = case.modules.get(module, {}).get(rank)
    return bool(notes and known) and len(notes[-1].idle) == len(known.parameters if known else ())
