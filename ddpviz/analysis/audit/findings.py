"""A finding: what is wrong, where, since when, how that is known, and how to mend it."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable
from typing import Any


class Severity(enum.IntEnum):
    """How bad, the worst first."""

    WRONG_NUMBERS = 0
    FAILURE = 1
    SLOW = 2
    NOTE = 3

    @property
    def text(self) -> str:
        """ "wrong numbers", "failure", "slow", "note"."""
        return self.name.lower().replace("_", " ")


#: How sure a finding is, the surest first.
SURENESS = ("certain", "likely", "possible")


@dataclasses.dataclass(frozen=True)
class Finding:
    """One cause, however many steps it shows in.

    ``kind``: a slug (:data:`ddpviz.analysis.audit.KINDS`). ``what``: what is wrong, a sentence.
    ``since_step``: the first step it shows in, -1 for before the first. ``ranks``: that it shows
    on, or that stand apart from the others. ``names``: of parameters, buffers, buckets or
    collectives. ``evidence``: how that is known; ``view`` and ``view_step``: where it can be seen
    ("" and None: in no view). ``cause``: the usual one; ``remedy``: how to mend it. ``sure``: of
    :data:`SURENESS`. ``module``: the DDP module's id, -1 where it is not about one.
    """

    kind: str
    severity: Severity
    what: str
    since_step: int
    ranks: tuple[int, ...]
    names: tuple[str, ...]
    evidence: str
    cause: str
    remedy: str
    sure: str
    view: str = ""
    view_step: int | None = None
    module: int = -1

    def as_json(self) -> dict[str, Any]:
        """Plain values by name; the severity as text."""
        return {**dataclasses.asdict(self), "severity": self.severity.text}


@dataclasses.dataclass(frozen=True)
class Unchecked:
    """A kind that this recording cannot tell; ``why`` completes "not checked, because"."""

    kind: str
    why: str


def by_reason(unchecked: Iterable[Unchecked]) -> dict[str, list[str]]:
    """Kinds, together by why they were not checked."""
    found: dict[str, list[str]] = {}
    for one in unchecked:
        found.setdefault(one.why, []).append(one.kind)
    return found


def in_order(found: list[Finding]) -> tuple[Finding, ...]:
    """The worst first, of these the surest, of these the earliest. What is said in the same words,
    as of a module that was wrapped again, is said once: since the earliest of its steps."""
    same: dict[tuple[str, str], Finding] = {}
    for one in found:
        known = same.get((one.kind, one.what))
        if known is not None:
            first, other = sorted((known, one), key=lambda each: each.since_step)
            ranks = tuple(sorted({*first.ranks, *other.ranks}))
            names = tuple(dict.fromkeys((*first.names, *other.names)))
            one = dataclasses.replace(first, ranks=ranks, names=names)
        same[one.kind, one.what] = one
    return tuple(
        sorted(
            same.values(),
            key=lambda one: (one.severity, SURENESS.index(one.sure), one.since_step, one.kind),
        )
    )
