"""The state of a session in the browser's words, from its status and from what was recorded."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ddpviz.analysis import finding, format_bytes
from ddpviz.analysis.audit import Finding, Severity, by_reason
from ddpviz.analysis.waiting import NOBODY, RankWaiting, Waiting, waiting
from ddpviz.events import Group, Module, Process

if TYPE_CHECKING:
    from ddpviz.engines import Session
    from ddpviz.engines.status import SessionStatus
    from ddpviz.explorer.subject import Subject

#: Shares and times are of so many of the newest steps.
_RECENT_STEPS = 20
#: A demonstration or a comparison has the session to itself.
_ALONE = ("demonstrating", "comparing")
#: A training session that says nothing for so long waits for something.
_SILENT_SECONDS = 0.6
#: Steps per second of what is older than this are none.
_STALE_SECONDS = 5.0

#: Columns of :func:`ddpviz.analysis.steps` that the state tells of.
_TOLD = (
    "step",
    "rank",
    "begin_ns",
    "step_ms",
    "exposed_communication_ms",
    "hidden_communication_ms",
)

#: Findings of the audit that are listed.
_MOST_FINDINGS = 20
#: Names of tensors that a finding has in the list.
_MOST_NAMES = 50
#: Names of a bucket's parameters that the table of a hang has.
_MOST_PARAMETERS = 8

_HINTS = {
    "idle": "press Start to train",
    "failed": "press Restart for new engines",
    "closed": "make a new session with ddpviz.Session()",
}


def status_of(session: Session | None) -> str:
    """One word for what a session is doing; one that is gone is closed."""
    return "closed" if session is None else session.status().status


def hint_of(subject: Subject) -> str:
    """What to do next, "" for nothing."""
    if subject.is_recording:
        return "" if subject.recording.last_step >= 0 else "this recording has no step"
    session = subject.session
    if session is None:
        return _HINTS["closed"]
    status = session.status()
    if status.status == "idle" and not status.workload:
        return 'load a workload: session.load("convnet")'
    return _HINTS.get(status.status, "")


def session_state(subject: Subject) -> dict[str, Any]:
    """The SessionState. Cheap: what is computed of steps is kept until another one completes."""
    session, follower = subject.session, subject.follower
    told = session.status() if session is not None else None
    status = told.status if told is not None else "closed"
    reason = told.reason if told is not None else ""
    if subject.is_recording:
        reason = "a recording: nothing runs"
    pulse = follower.pulse()
    age_s = time.monotonic() - pulse.heard if pulse.heard else 0.0
    stuck = NOBODY
    if status in ("training", "waiting", *_ALONE) and age_s > _SILENT_SECONDS:
        stuck = _stuck(subject)
        if stuck.reason and status in _ALONE:
            reason = f"{reason}; {stuck.reason}"
        elif stuck.reason:
            status, reason = "waiting", reason or stuck.reason
    recent = _recent(follower.history()[1].steps)
    processes = {note.rank: note for note in subject.recording.notes(Process)}
    first, last = follower.span()
    failure = _failure(told)
    if failure is not None and status == "failed":
        reason = reason or failure["message"]
    step = follower.newest()
    modules = [note.name for note in subject.recording.notes(Module)]
    workload = (told.workload if told else "") or (modules[-1] if modules else "")
    worlds = [note.world_size for note in processes.values()]
    findings = subject.auditor.findings(pulse.version)
    return {
        "session": subject.id,
        "recording": subject.is_recording,
        "name": workload or subject.id,
        "workload": workload,
        "backend": (told.backend if told else "") or _backend(subject),
        "world_size": told.world_size if told else max(worlds, default=0),
        "status": status,
        "reason": reason,
        "configured": told.configured if told else 0,
        "step": -1 if step is None else step,
        "steps_per_second": _rate(recent) if _moves(subject, status, age_s) else None,
        **_numbers(recent),
        "hint": hint_of(subject),
        "follow_steps": [first, last] if last >= 0 else [],
        "failure": failure,
        "waiting": [_beside(one) for one in stuck.ranks],
        "ranks": _ranks(told, processes, stuck, pulse.begun),
        "age_s": round(age_s, 1),
        "findings": len(findings) + (1 if failure and not _told(findings) else 0),
        "audit": [_found(one) for one in findings[:_MOST_FINDINGS]],
        "audited": subject.auditor.looked.steps >= 0,
        "unchecked": _unchecked(subject),
        "title": title_of(subject, step),
    }


def _unchecked(subject: Subject) -> list[str]:
    """What the findings do not cover, a sentence each."""
    looked = subject.auditor.looked
    said = []
    if looked.skipped:
        said.append(
            f"{looked.skipped} of {looked.steps + 1} steps went by faster than the audit looks at "
            "them: recording.audit() looks at all"
        )
    reasons = by_reason(looked.unchecked)
    return [*said, *(f"{', '.join(kinds)}: {why}" for why, kinds in reasons.items())]


def _told(findings: Sequence[Finding]) -> bool:
    """Whether a rank's failure is among the findings, or one that says why it failed."""
    return any(one.severity <= Severity.FAILURE for one in findings)


def _moves(subject: Subject, status: str, age_s: float) -> bool:
    """Whether steps are being taken: by a session that trains, or a job that is recorded."""
    at_rest = status in ("idle", "failed", "closed") and not subject.is_recording
    return not at_rest and age_s < _STALE_SECONDS


def title_of(subject: Subject, step: int | None) -> str:
    """The newest step in one sentence; computed at most once a second."""
    now, version = time.monotonic(), subject.version_of(step)
    known_version, known_at, known = subject.told
    if step is None:
        return ""
    if known_version == version or now - known_at < 1.0:
        return known
    try:
        source = subject.follower.moment(step, "", 0).source
        known = finding(source, step)
    except Exception as error:
        known = f"this step cannot be told in a sentence: {error}"
    subject.told = (version, now, known)
    return known


def _stuck(subject: Subject) -> Waiting:
    follower = subject.follower
    begun = max(follower.pulse().begun.values(), default=-1)
    if begun < 0:
        return NOBODY
    return waiting(follower.moment(begun, "", 0).source, time.time_ns())


def _beside(one: RankWaiting) -> dict[str, Any]:
    """A rank's row of the table that shows while a collective hangs."""
    at = one.at
    return {
        "rank": one.rank,
        "state": one.state,
        "collective": one.collective,
        "size": format_bytes(one.bytes) if one.bytes > 0 else "",
        "seconds": round(one.for_s, 1),
        "where": f"{at.file}:{at.line}" if at else "",
        "function": at.function if at else "",
        "code": at.text if at else "",
        "parameters": list(one.parameters[:_MOST_PARAMETERS]),
        "more_parameters": max(len(one.parameters) - _MOST_PARAMETERS, 0),
    }


def _found(one: Finding) -> dict[str, Any]:
    """A finding of the audit, and where to look at it."""
    return {
        "kind": one.kind,
        "severity": one.severity.text,
        "what": one.what,
        "since": one.since_step,
        "evidence": one.evidence,
        "cause": one.cause,
        "remedy": one.remedy,
        "sure": one.sure,
        "view": one.view,
        "step": one.view_step,
        "ranks": list(one.ranks),
        "names": list(one.names[:_MOST_NAMES]),
        "more_names": max(len(one.names) - _MOST_NAMES, 0),
    }


def _recent(steps: pd.DataFrame) -> dict[str, np.ndarray]:
    """The columns of the newest steps."""
    columns = {name: steps[name].to_numpy() for name in _TOLD}
    numbers = columns["step"]
    if not len(numbers):
        return columns
    newest = numbers > numbers[-1] - _RECENT_STEPS
    return {name: values[newest] for name, values in columns.items()}


def _numbers(recent: dict[str, np.ndarray]) -> dict[str, float | None]:
    """Means over ranks and the recent steps."""
    step_ms, exposed = recent["step_ms"], recent["exposed_communication_ms"]
    hidden = recent["hidden_communication_ms"]
    if not len(step_ms):
        return {"exposed_share": None, "step_ms": None, "overlap": None}
    whole = hidden.sum() + exposed.sum()
    return {
        "exposed_share": _known(exposed.sum() / step_ms.sum() if step_ms.sum() else math.nan),
        "step_ms": _known(float(np.mean(step_ms))),
        "overlap": _known(hidden.sum() / whole if whole else math.nan),
    }


def _rate(recent: dict[str, np.ndarray]) -> float | None:
    """Completed steps per second: by the median of the recent ones' times from begin to begin on
    the first rank, so that a pause between two is none of it."""
    ranks = recent["rank"]
    if not len(ranks):
        return None
    begins = recent["begin_ns"][ranks == ranks.min()]
    period_ns = float(np.median(np.diff(begins))) if len(begins) > 1 else 0.0
    return 1e9 / period_ns if period_ns > 0 else None


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _backend(subject: Subject) -> str:
    found = [group.backend for group in subject.recording.notes(Group) if group.backend]
    return ", ".join(dict.fromkeys(found))


def _failure(told: SessionStatus | None) -> dict[str, Any] | None:
    error = told.failure if told is not None else None
    if error is None:
        return None
    return {"message": error.summary, "rank": error.rank, "step": error.step}


def _ranks(
    told: SessionStatus | None,
    processes: dict[int, Process],
    stuck: Waiting,
    begun: dict[int, int],
) -> list[dict[str, Any]]:
    """As the session has them; of a recording, as they described themselves."""
    if told is not None and told.ranks:
        found = [dataclasses.asdict(one) for one in told.ranks]
    else:
        found = [
            {
                "rank": rank,
                "pid": note.pid,
                "state": "idle",
                "device": note.device,
                "hostname": note.hostname,
            }
            for rank, note in sorted(processes.items())
        ]
    for one in found:
        one["step"] = begun.get(one["rank"], -1)
        if one["rank"] in stuck.doing and one["state"] == "stepping":
            one["state"] = f"in {stuck.doing[one['rank']]}"
    return found
