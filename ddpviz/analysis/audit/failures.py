"""A rank that failed, by its own words or by the silence after its last record."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from ddpviz.analysis.audit.case import Case, on
from ddpviz.analysis.audit.findings import Finding, Severity
from ddpviz.analysis.failed import on_its_own
from ddpviz.analysis.naming import collective_name
from ddpviz.events import Ended, Failure, Process

#: Whoever runs the job ended it.
_STOPPED = (
    "KeyboardInterrupt",
    "SystemExit",
    "it did not end its step within",
    "it was interrupted",
)


def rank_failed(case: Case, found: list[Finding]) -> Iterator[Finding]:
    """The first rank that failed on its own account, unless a finding of that step says why."""
    noted = (note for _, note in case.notes(Failure) if not note.message.startswith(_STOPPED))
    failures = sorted(noted, key=lambda note: note.time_ns)
    own = [one for one in failures if on_its_own(one)]
    for note in (own or failures)[:1]:
        step = case.since(note.rank, note.step, note.time_ns)
        if any(
            one.severity <= Severity.FAILURE and step - 1 <= one.since_step <= step for one in found
        ):
            return
        if not own and (lost := _lost(case, failures)):
            yield _ended_silently(case, note, lost, step)
        elif len(own) > 1 and {one.rank for one in own} == set(case.ranks) and _alike(own):
            yield _all_raised(own, step)
        else:
            yield _failed(case, note, own, failures, step)


def _failed(
    case: Case, note: Failure, own: list[Failure], failures: list[Failure], step: int
) -> Finding:
    last = [line.strip() for line in note.traceback.splitlines() if line.strip()]
    place = next((line for line in reversed(last) if line.startswith("File ")), "")
    others = {one.rank for one in failures} - {note.rank}
    too = sorted({one.rank for one in own} & others)
    also = f"; {on(too)} failed on their own account too" if too else ""
    if note.rank not in {one.rank for one in own}:
        cause, remedy = (
            "another rank, of which there is no record here, or the network",
            "see what the launcher says of the other ranks",
        )
    elif not last:  # a session saw its process end, or ended it
        cause, remedy = (
            "its process was ended from outside (out of memory, a scheduler, a signal), or crashed "
            "outside of Python",
            "see what ended it: the launcher's exit code, the kernel's log",
        )
    else:
        cause = "an error in the training script or its data on that rank"
        remedy = "mend it there" + ("" if too else ": the other ranks only lost it")
    return Finding(
        "rank-failed",
        Severity.FAILURE,
        f"rank {note.rank} failed: {note.message}{also}",
        step,
        (note.rank, *too),
        _inside(case, (note.rank, *too)),
        place or "whoever started the rank saw it end",
        cause,
        remedy,
        "certain",
        "timeline",
        note.step if note.step >= 0 else None,
    )


def _inside(case: Case, ranks: Collection[int]) -> tuple[str, ...]:
    """Collectives that these ranks were in when they ended."""
    calls = case.evidence.calls
    still = calls[(calls["end_ns"] == 0) & np.isin(calls["rank"], list(ranks))]
    return tuple(dict.fromkeys(collective_name(case.source, one) for one in still))


def _alike(own: list[Failure]) -> bool:
    """Whether they are one exception, raised in the same step everywhere."""
    return len({(one.step, one.message.split(":")[0], bool(one.traceback)) for one in own}) == 1


def _all_raised(own: list[Failure], step: int) -> Finding:
    note = own[0]
    return Finding(
        "rank-failed",
        Severity.NOTE,
        f"all ranks ended by the same exception: {note.message}",
        step,
        tuple(sorted(one.rank for one in own)),
        (),
        f"each raised it in the same step, rank {note.rank} first",
        "an error in the training script that does not depend on the rank, or an exception that "
        "is how training ends there",
        "mend it in the script; where it is meant, catch it inside of what is recorded",
        "certain",
        "timeline",
        note.step if note.step >= 0 else None,
    )


def _lost(case: Case, failures: list[Failure]) -> list[int]:
    """Ranks whose records stop without an end, while others say that they lost a connection.

    Where some of them wait in a collective, as ranks do that the launcher ends because of another,
    only those that do not.
    """
    known = {note.rank: note.started_ns for _, note in case.notes(Process)}
    said = {one.rank for one in failures}
    ended = {rank for rank, note in case.notes(Ended) if note.time_ns >= known.get(rank, 0)}
    silent = [rank for rank in case.ranks if rank not in said | ended]
    calls = case.evidence.calls
    waits = set(calls["rank"][calls["end_ns"] == 0].tolist())
    return [rank for rank in silent if rank not in waits] or silent


def _ended_silently(case: Case, note: Failure, lost: list[int], step: int) -> Finding:
    one = len(lost) == 1
    return Finding(
        "rank-failed",
        Severity.FAILURE,
        f"{on(lost)} ended without a word, and rank {note.rank} lost the connection to "
        + ("it" if one else "one of them"),
        step,
        tuple(lost),
        _inside(case, lost),
        f"nothing more was recorded of {'it' if one else 'them'}, not even an end; rank "
        f"{note.rank}: {note.message.splitlines()[0]}",
        "the process was killed (out of memory, a scheduler, a signal), or crashed outside of "
        "Python",
        "see the launcher's exit code of that rank, and the kernel's log for out of memory",
        "certain" if one else "likely",
        "timeline",
        note.step if note.step >= 0 else None,
    )
