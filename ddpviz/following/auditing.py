"""The audit of a recording while it grows: of the newest steps, now and then, beside the rest; and
of all of it once it rests, where steps went by between two looks."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from typing import Any, TypeVar, cast

import numpy as np

from ddpviz.analysis.audit import Finding, Severity, Unchecked, audit, in_order, not_checked
from ddpviz.analysis.part import Part
from ddpviz.events import Fingerprints, Kind, Projections
from ddpviz.recording import Recording

#: Steps and records that one audit looks at.
_STEPS, _MOST_RECORDS = 200, 60_000
#: Records of a recording at rest that are looked at all together: some seconds of a core.
_MOST_AT_REST = 300_000
#: At most once in so long, and so that it takes this share of a core.
_SECONDS, _SHARE = 3.0, 0.05
#: Findings that are kept; a run has one per cause.
_MOST = 50

_NoteType = TypeVar("_NoteType")
_log = logging.getLogger("ddpviz")


@dataclasses.dataclass(frozen=True)
class Looked:
    """What was looked at. ``skipped``: steps that no look had, as more were taken meanwhile, or
    before the first. ``unchecked``: what the last look could not tell, and why. ``steps``: up to
    which one; -1 before the first look, or before the first step."""

    skipped: int = 0
    unchecked: tuple[Unchecked, ...] = ()
    steps: int = -1


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
        self._looked = Looked()
        self._due = 0.0
        self._running = False
        self._complained = False

    @property
    def known(self) -> tuple[Finding, ...]:
        """The last ones, as they are."""
        with self._lock:
            return self._found

    @property
    def looked(self) -> Looked:
        """What the findings were looked for in."""
        with self._lock:
            return self._looked

    def findings(self, version: object) -> tuple[Finding, ...]:
        """The last ones known, at once. ``version``: differs whenever more was recorded."""
        with self._lock:
            rests = version == self._version and self._looked.skipped > 0
            rests = rests and len(self.recording) <= _MOST_AT_REST
            due = (version != self._version or rests) and time.monotonic() >= self._due
            if due and not self._running:
                self._running, self._version = True, version
                looking = threading.Thread(
                    target=self._look, args=(rests,), name="ddpviz audit", daemon=True
                )
                looking.start()
            return self._found

    def look(self, whole: bool = False) -> tuple[Finding, ...]:
        """Audit now, on this thread. ``whole``: of all that memory has, not of the newest steps."""
        recent = Recent(self.recording)
        source = self.recording if whole else recent
        with self._lock:
            # What is all there says by itself what there is.
            before = [] if whole and not self.recording.dropped else list(self._kept)
        found = audit(source, before)
        unchecked = not_checked(source)
        with self._lock:
            self._kept = before
            since = self._looked.steps + 1
            skipped = self._looked.skipped + max(0, recent.first - since)
            self._looked = Looked(0 if whole else skipped, unchecked, recent.last)
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

    def _look(self, whole: bool) -> None:
        begin = time.monotonic()
        try:
            self.look(whole)
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
    """A recording's newest steps (``first`` to ``last``), what was outside of steps, and the notes
    to them."""

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
        self.first, self.last = first, last
        super().__init__(recording, np.concatenate([built, others, *here]))

    def notes(self, kind: type[_NoteType], /, rank: int | None = None) -> list[_NoteType]:
        """Of what comes with every sampled step, those of the newest, and the initial ones."""
        found: list[Any] = super().notes(kind, rank=rank)
        if kind is Fingerprints or kind is Projections:
            found = [note for note in found if note.step >= self.first or note.step < 0]
        return cast(list[_NoteType], found)
