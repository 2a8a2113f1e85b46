"""A rank that failed, collectives that do not match, and what everyone waits for at the end."""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from collections.abc import Iterator

import numpy as np

from ddpviz.analysis.audit.case import Case, apart, on
from ddpviz.analysis.audit.findings import Finding, Severity
from ddpviz.analysis.naming import collective_name
from ddpviz.analysis.units import format_bytes
from ddpviz.analysis.waiting import waiting
from ddpviz.analysis.waiting.scene import Scene, sizes_differ
from ddpviz.events import Ended, Failure, Process, Stall

#: An error that a rank gets because another one is gone: that one is told.
_PEER_GONE = ("connection closed", "connection reset", "broken pipe", "timed out", "socket")


#: Whoever runs the job ended it.
_STOPPED = (
    "KeyboardInterrupt",
    "SystemExit",
    "it did not end its step within",
    "it was interrupted",
)
#: How long a collective may be open before that is a failure, and no note.
_LONG_S = 60.0
#: Findings that say why ranks wait at the end.
_EXPLAINED = (
    "mismatched-collectives",
    "rank-failed",
    "step-counts",
    "backward-skipped",
    "debug-detail",
)


def rank_failed(case: Case, found: list[Finding]) -> Iterator[Finding]:
    """The first rank that failed on its own account, unless a finding of that step says why."""
    noted = (note for _, note in case.notes(Failure) if not note.message.startswith(_STOPPED))
    failures = sorted(noted, key=lambda note: note.time_ns)
    own = [one for one in failures if not any(s in one.message.lower() for s in _PEER_GONE)]
    for note in (own or failures)[:1]:
        step = case.since(note.rank, note.step, note.time_ns)
        if any(
            one.severity <= Severity.FAILURE and step - 1 <= one.since_step <= step for one in found
        ):
            return
        if not own and (lost := _lost(case, failures)):
            yield _ended_silently(note, lost, step)
        elif len(own) > 1 and {one.rank for one in own} == set(case.ranks) and _alike(own):
            yield _all_raised(own, step)
        else:
            yield _failed(note, own, failures, step)


def _failed(note: Failure, own: list[Failure], failures: list[Failure], step: int) -> Finding:
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
        (),
        place or "whoever started the rank saw it end",
        cause,
        remedy,
        "certain",
        "timeline",
        note.step if note.step >= 0 else None,
    )


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


def _ended_silently(note: Failure, lost: list[int], step: int) -> Finding:
    one = len(lost) == 1
    return Finding(
        "rank-failed",
        Severity.FAILURE,
        f"{on(lost)} ended without a word, and rank {note.rank} lost the connection to "
        + ("it" if one else "one of them"),
        step,
        tuple(lost),
        (),
        f"nothing more was recorded of {'it' if one else 'them'}, not even an end; rank "
        f"{note.rank}: {note.message.splitlines()[0]}",
        "the process was killed (out of memory, a scheduler, a signal), or crashed outside of "
        "Python",
        "see the launcher's exit code of that rank, and the kernel's log for out of memory",
        "certain" if one else "likely",
        "timeline",
        note.step if note.step >= 0 else None,
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
        yield Finding(
            "mismatched-collectives",
            Severity.FAILURE,
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
    name = next(iter(operations), "")
    return any(sizes_differ(scene.calls[at[0]], scene.calls[one], name) for one in at[1:])


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
