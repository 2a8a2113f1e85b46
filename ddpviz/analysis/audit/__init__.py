"""What is wrong with a run, told from its recording: one finding per cause, the worst first.

One module per family of kinds, each detector a function of a :class:`Case`;
:mod:`ddpviz.analysis.audit.register` lists them. A healthy run has no findings.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from ddpviz.analysis.audit.case import Case
from ddpviz.analysis.audit.findings import Finding, Severity, Unchecked, by_reason, in_order
from ddpviz.analysis.audit.register import KINDS, detect, unchecked
from ddpviz.analysis.source import Source
from ddpviz.events import Process

__all__ = [
    "KINDS",
    "Finding",
    "Severity",
    "Unchecked",
    "alone",
    "audit",
    "by_reason",
    "in_order",
    "not_checked",
]


def audit(source: Source, known: Iterable[Finding] = ()) -> tuple[Finding, ...]:
    """What is wrong: wrong numbers, failures, what is slow, notes; in this order. Empty for a
    healthy run. What a recording does not have is not concluded from: :func:`not_checked`.

    ``known``: findings from what came before this source: what follows from them is no other one.
    """
    case = Case(source)
    return in_order([_shown(case, one) for one in detect(case, known)])


def _shown(case: Case, found: Finding) -> Finding:
    """With the last step up to its own that there is something to see of, where it names one."""
    step = found.view_step
    if step is None or not found.view:
        return found
    if step < 0:
        here = step if case.evidence.construction(step) is not None else None
    else:
        known = case.recorded_steps
        known = known[known <= step]
        here = int(known[-1]) if len(known) else None
    return dataclasses.replace(found, view=found.view if here is not None else "", view_step=here)


def alone(source: Source) -> str:
    """That one rank of several was recorded, so that none were compared; "" where it is not so."""
    world = max((note.world_size for note in source.notes(Process)), default=1)
    if len(source.ranks) != 1 or world < 2:
        return ""
    return (
        f"found rank {source.ranks[0]} only, expected all {world}: whether the replicas are equal "
        "was not checked; attach every rank with the same out=, and audit what load(out) gives"
    )


def not_checked(source: Source) -> tuple[Unchecked, ...]:
    """Kinds of findings that this recording cannot tell, and why."""
    return tuple(unchecked(Case(source)))
