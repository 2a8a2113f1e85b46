"""The audit of a recording while it grows: of the newest steps, now and then, beside the rest."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from typing import Any, TypeVar, cast

import numpy as np

from ddpviz.analysis.audit import Finding, Severity, audit, in_order
from ddpviz.analysis.part import Part
from ddpviz.events import Fingerprints, Kind, Projections
from ddpviz.recording import Recording

#: Steps and records that one audit looks at.
_STEPS, _MOST_RECORDS = 200, 60_000
#: At most once in so long, and so that it takes this share of a core.
_SECONDS, _SHARE = 3.0, 0.05
#: Findings that are kept; a run has one per cause.
_MOST = 50

_NoteType = TypeVar("_NoteType")
_log = logging.getLogger("ddpviz")


class Auditor:
    """Of one recording. Any thread may ask; the audit runs on a thread of its own while it does.

    What was wrong stays listed, since the step it was first seen in; what is slow is listed as long
    as it is among the newest steps.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._lock = threading.Lock()
        self._kept: list[Finding] = []
        self._found: tuple[Finding, ...] = ()
        self._version: object = None
        self._due = 0.0
        self._running = False
        self._complained = False

    @property
    def known(self) -> tuple[Finding, ...]:
        """The last ones, as they are."""
        with self._lock:
            return self._found

    def findings(self, version: object) -> tuple[Finding, ...]:
        """The last ones known, at once. ``version``: differs whenever more was recorded."""
        with self._lock:
            due = version != self._version and time.monotonic() >= self._due
            if due and not self._running:
                self._running, self._version = True, version
                threading.Thread(target=self._look, name="ddpviz audit", daemon=True).start()
            return self._found

    def look(self) -> tuple[Finding, ...]:
        """Audit now, on this thread."""
        with self._lock:
            before = list(self._kept)
        found = audit(Recent(self.recording), before)
        with self._lock:
            fresh: list[Finding] = []
            for one in found:
                known = _same_cause(one, self._kept)
                if known is not None and (_stays(one) or one.severity is Severity.NOTE):
                    self._kept.remove(known)  # a note: what came since says that it is none
                if _stays(one) and len(self._kept) + len(fresh) < _MOST:
                    fresh.append(_joined(known, one) if known is not None else one)
            self._kept += fresh
            now = [one for one in found if not _stays(one)]
            self._found = in_order([*self._kept, *now])
            return self._found

    def _look(self) -> None:
        begin = time.monotonic()
        try:
            self.look()
        except Exception:  # a recording that is half there; the explorer goes on
            if not self._complained:
                self._complained = True
                _log.exception("the audit could not go on; said once")
        finally:
            took = time.monotonic() - begin
            with self._lock:
                self._running = False
                self._due = time.monotonic() + max(_SECONDS, took / _SHARE)


def _same_cause(one: Finding, kept: list[Finding]) -> Finding | None:
    """What is kept of the same cause: that says the same, or else is about the same tensors and
    ranks, or about some of them; what names nothing is the same wherever it is."""
    alike = [
        known
        for known in kept
        if (known.kind, known.module) == (one.kind, one.module)
        and (
            known.what == one.what
            or not (known.names and one.names)
            or {*known.names} & {*one.names}
        )
    ]

    def closeness(known: Finding) -> tuple[bool, bool, bool]:
        return known.what == one.what, known.names == one.names, known.ranks == one.ranks

    return max(alike, key=closeness, default=None)


def _joined(known: Finding, one: Finding) -> Finding:
    """As it is told now, since it was first seen, with all that it was seen on."""
    return dataclasses.replace(
        one,
        since_step=min(known.since_step, one.since_step),
        ranks=tuple(sorted({*known.ranks, *one.ranks})),
        names=tuple(dict.fromkeys((*known.names, *one.names))),
    )


def _stays(one: Finding) -> bool:
    """What is slow may be over, and so may a hang; replicas that are equal again parted once."""
    if one.severity is Severity.NOTE:
        return one.kind == "replicas-parted" and one.sure == "certain"
    return one.severity <= Severity.FAILURE and one.kind != "hang"


class Recent(Part):
    """A recording's newest steps, what was outside of steps, and the notes to them."""

    def __init__(self, recording: Recording) -> None:
        last = recording.last_step
        first = max(0, last - _STEPS + 1)
        found = recording.records(steps=range(first, last + 1)) if last >= 0 else None
        if found is not None and len(found) > _MOST_RECORDS:
            per_step = len(found) / (last - first + 1)
            first = last - max(1, int(_MOST_RECORDS / per_step)) + 1
        # What comes before a step, as its collectives do, and constructions.
        outside = recording.records(steps=-1)
        built = outside[outside["kind"] <= Kind.CONSTRUCTION_OPTIONS]
        here = [] if found is None else [found[found["step"] >= first]]
        others = outside[outside["kind"] > Kind.CONSTRUCTION_OPTIONS][-_MOST_RECORDS // 10 :]
        self._first = first
        super().__init__(recording, np.concatenate([built, others, *here]))

    def notes(self, kind: type[_NoteType], /, rank: int | None = None) -> list[_NoteType]:
        """Of what comes with every sampled step, those of the newest, and the initial ones."""
        found: list[Any] = super().notes(kind, rank=rank)
        if kind is Fingerprints or kind is Projections:
            found = [note for note in found if note.step >= self._first or note.step < 0]
        return cast(list[_NoteType], found)
