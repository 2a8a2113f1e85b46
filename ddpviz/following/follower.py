"""Follows a recording while it grows: which steps are complete, and the tables of the last ones.

Whatever the recording holds, a look costs what came since the last one: the subscription only
counts, and the tables are computed for the steps that changed.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import Any

import numpy as np

from ddpviz.analysis.constructions import constructions, place_of
from ddpviz.analysis.tables import happened, no_step
from ddpviz.events import Batch, Ended, Failure, Kind, Process
from ddpviz.following.changes import Changes
from ddpviz.following.tables import Tables, tables_of
from ddpviz.following.window import Window
from ddpviz.recording import Recording
from ddpviz.views.live import HISTORY_STEPS, History, Moment

#: A step that has not ended after this long is shown as far as it got.
_UNFINISHED_SECONDS = 1.0
#: The tables of the last steps are brought up to date at most this often.
_REFRESH_SECONDS = 0.5
#: Steps before the newest whose records are counted each; what comes later still changes all.
_COUNTED_STEPS = 32
#: Records of the steps that one look takes in at most; older ones of a burst are left out.
_MOST_RECORDS = 60_000
_CONSTRUCTIONS = range(Kind.CONSTRUCTION, Kind.CONSTRUCTION_OPTIONS + 1)
_COLLECTIVES = (Kind.COLLECTIVE_LAUNCHED, Kind.COLLECTIVE_DONE)


@dataclasses.dataclass(frozen=True)
class Pulse:
    """Counts of a recording's stream. ``completed``, ``begun``: per rank the newest such step.

    ``version`` grows with every batch. ``heard``: when the last came, by ``time.monotonic``.
    """

    version: int
    completed: dict[int, int]
    begun: dict[int, int]
    heard: float


class Follower:
    """One per recording; any thread may ask, one thread at a time looks.

    ``close`` ends the subscription.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._lock = threading.Lock()  # of the counts
        self._looking = threading.Lock()  # of the tables
        self._version = 0
        self._dirty_from = 0  # the first step that changed since the last look
        self._completed: dict[int, int] = {}
        self._begun: dict[int, int] = {}
        self._ended: set[int] = set()  # ranks that recorded to their end, and wait for nobody
        self._heard = 0.0
        self._counts: dict[int, int] = {}  # records by step, of the newest ones, and of none (-1)
        self._others = 0  # notes, and records of older steps
        self._places: list[tuple[Failure, int]] = []  # failures, each with the step it is told at
        self._changes = Changes()
        self._rows = tables_of(Window(recording, recording.records(steps=[])))
        self._tables = self._rows.history()
        self._refreshed = 0.0
        self._refreshes = 0
        self._window: tuple[Any, Window] | None = None
        self._wake: threading.Event | None = None
        self.close = recording.subscribe(self._take)
        self._catch_up()

    # --- the appending thread ------------------------------------------------------------------

    def _take(self, batch: Batch) -> None:
        records = happened(batch.records)
        numbers, counts = np.unique(records["step"], return_counts=True)
        ended = records["step"][(records["kind"] == Kind.STEP) & (records["end_ns"] > 0)]
        in_steps = numbers[numbers >= 0]
        with self._lock:
            self._version += 1
            if len(batch.records):  # a note alone, as of a stall, is no sign that it goes on
                self._heard = time.monotonic()
            if len(in_steps):
                self._dirty_from = min(self._dirty_from, int(in_steps[0]))
                self._begun[batch.rank] = max(self._begun.get(batch.rank, -1), int(in_steps[-1]))
            self._count(numbers.tolist(), counts.tolist())
            self._others += len(batch.notes)
            for note in batch.notes:
                if isinstance(note, Ended):
                    self._ended.add(batch.rank)
                elif isinstance(note, Process):
                    self._ended.discard(batch.rank)
            if len(ended):
                before = self._completed.get(batch.rank, -1)
                self._completed[batch.rank] = max(before, int(ended.max()))
        if self._wake is not None:
            self._wake.set()

    def _count(self, steps: list[int], counts: list[int]) -> None:
        oldest = max(self._begun.values(), default=-1) - _COUNTED_STEPS
        for step, count in zip(steps, counts, strict=True):
            if step > oldest or step < 0:
                self._counts[step] = self._counts.get(step, 0) + count
            else:
                self._others += count
        for step in [step for step in self._counts if 0 <= step <= oldest]:
            del self._counts[step]

    def wake(self, event: threading.Event) -> None:
        """Sets ``event`` with every batch from now on."""
        self._wake = event

    def _catch_up(self) -> None:
        """What was recorded before the subscription."""
        last = self.recording.last_step
        found = self.recording.records(steps=range(max(0, last - HISTORY_STEPS - 1), last + 1))
        for rank in np.unique(found["rank"]).tolist():
            self._take(Batch(rank, 0, found[found["rank"] == rank]))
        with self._lock:
            self._dirty_from = max(0, last - HISTORY_STEPS - 1)
            for rank in self.recording.ranks:
                notes = self.recording.notes(Ended, rank=rank)
                started = [note.started_ns for note in self.recording.notes(Process, rank=rank)]
                if notes and notes[-1].time_ns >= max(started, default=0):
                    self._ended.add(rank)

    # --- any thread ----------------------------------------------------------------------------

    def pulse(self) -> Pulse:
        """The counts of this moment."""
        with self._lock:
            return Pulse(self._version, dict(self._completed), dict(self._begun), self._heard)

    def version_of(self, step: int | None) -> tuple[int, ...]:
        """Differs whenever what this step is drawn from may: its records, or notes."""
        with self._lock:
            return self._others, self._counts.get(-1 if step is None else max(step, -1), 0)

    @property
    def newest_complete(self) -> int:
        """The newest step that every rank completed which goes on, -1 for none; where all have
        ended, as under Join after different numbers of steps, the last of any."""
        with self._lock:
            ranks = set(self._begun) | set(self._completed)
            if going_on := ranks - self._ended:
                return min(self._completed.get(rank, -1) for rank in going_on)
            return max((self._completed.get(rank, -1) for rank in ranks), default=-1)

    def newest(self) -> int | None:
        """The step to show: the newest complete one, or one that hangs or failed as far as it got.

        Without any step the newest construction; None where nothing was recorded.
        """
        complete = self.newest_complete
        with self._lock:
            begun = max(self._begun.values(), default=-1)
            silent = time.monotonic() - self._heard
        if begun > complete:
            failed = [note.step for note in self.recording.notes(Failure)]
            if complete < 0 or begun in failed or silent > _UNFINISHED_SECONDS:
                return begun
        if complete >= 0:
            return complete
        return -1 if self._has_construction() else None

    def history(self) -> tuple[int, History]:
        """The tables of the last complete steps, and a number that grows when they change."""
        with self._looking:
            found = self._history()
            return self._refreshes, found

    def moment(self, step: int | None, hint: str, width_px: int) -> Moment:
        """What views of a step are drawn from; ``step`` None takes the newest.

        Of a step that was not recorded, or is no longer in memory, the hint says so.
        """
        with self._looking:
            shown = self.newest() if step is None else step
            history = self._history()
            window = self._of_step(shown)
        if shown is not None and not len(happened(window.records())):
            first, last = self.span()
            hint = no_step(shown, sorted({first, last}) if last >= 0 else [])
            shown = None
        return Moment(window, shown, history, hint, width_px, self._outside)

    def span(self) -> tuple[int, int]:
        """The first and the last step that memory still has whole, (-1, -1) without any."""
        table = self._tables.steps
        last = self.newest_complete
        if last < 0:
            return -1, -1
        if not self.recording.dropped:
            return 0, last
        return (int(table["step"].iloc[0]) if len(table) else last), last

    # --- looking -------------------------------------------------------------------------------

    def _history(self) -> History:
        now, last = time.monotonic(), self.newest_complete
        if now - self._refreshed < _REFRESH_SECONDS or self._dirty_from > last:
            return self._tables
        self._refreshed = now
        self._refreshes += 1
        with self._lock:
            first, self._dirty_from = self._dirty_from, last + 1
        first = max(first, last - HISTORY_STEPS + 1, 0)
        if first <= last:
            self._rows = self._rows.joined(self._rows_of(first, last), first, last)
        self._tables = self._rows.history(self._changes.read(self.recording))
        return self._tables

    def _rows_of(self, first: int, last: int) -> Tables:
        # With the step before: how long after it a step began is a number of the step.
        found = self.recording.records(steps=range(max(first - 1, 0), last + 1))
        if len(found) > _MOST_RECORDS:
            # Few steps of very many records: the newest of them, so that a look stays short.
            per_step = len(found) / (last - first + 2)
            first = last - max(1, int(_MOST_RECORDS / per_step)) + 1
            found = found[found["step"] >= first - 1]
        return tables_of(Window(self.recording, found)).within(first, last)

    def _of_step(self, step: int | None) -> Window:
        """The window of one step, kept until more of it comes."""
        version = (step, self.version_of(step))
        if self._window is not None and self._window[0] == version:
            return self._window[1]
        told = [note for note, at in self._placed() if at == step or (step or 0) < 0]
        if step is None:
            window = Window(self.recording, self.recording.records(steps=[]))
        elif step < 0 or any(note.step < 0 for note in told):
            # With what was between the steps: where the failure stands to it, and what it was in.
            found = self.recording.records(steps=[-1, max(step, -1)])
            window = Window(self.recording, found, told, narrow=False)
        else:
            window = Window(self.recording, self.recording.records(steps=step), told)
        self._window = (version, window)
        return window

    def _placed(self) -> list[tuple[Failure, int]]:
        """Failures and the steps that they are told at; looked for once in the whole recording."""
        failures, known = self.recording.notes(Failure), self._places
        if any(at != note.step and self._has(note.step) for note, at in known):
            known = []  # what was read back later has its step after all
        if len(failures) > len(known):
            built = constructions(self.recording)
            places = [(note, place_of(self.recording, note, built)) for note in failures]
            known = [(note, place.step if place else note.step) for note, place in places]
        self._places = known
        return known

    def _has(self, step: int) -> bool:
        """Whether anything of a recent step was recorded; outside of steps nothing counts."""
        with self._lock:
            return step >= 0 and step in self._counts

    def _outside(self) -> Window:
        """Constructions, and collectives between steps."""
        found = self.recording.records(kinds=(*_CONSTRUCTIONS, *_COLLECTIVES), steps=-1)
        return Window(self.recording, found, narrow=False)

    def _has_construction(self) -> bool:
        return bool(len(self.recording.records(kinds=_CONSTRUCTIONS, steps=-1)))
