"""Follows a recording while it grows: which steps are complete, and the tables of the last ones.

Whatever the recording holds, a look costs what came since the last one: the subscription only
counts, and the tables are computed for the steps that changed.
"""

from __future__ import annotations

import dataclasses
import threading
import time

import numpy as np
import pandas as pd

from ddpviz.analysis import buffers, steps
from ddpviz.analysis.calls import calls
from ddpviz.analysis.naming import label_texts
from ddpviz.events import Batch, Cause, Failure, Kind
from ddpviz.explorer.changes import Changes
from ddpviz.explorer.window import Window
from ddpviz.recording import Recording
from ddpviz.views.live import HISTORY_STEPS, History, Moment

#: A step that has not ended after this long is shown as far as it got.
_UNFINISHED_SECONDS = 1.0
#: The tables of the last steps are brought up to date at most this often.
_REFRESH_SECONDS = 0.5
#: Records of the steps that one look takes in at most; older ones of a burst are left out.
_MOST_RECORDS = 60_000
_COMMUNICATION = ("hidden_communication_ms", "exposed_communication_ms")


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
        self._heard = 0.0
        self._changes = Changes()
        self._tables = no_tables()
        self._refreshed = 0.0
        self._refreshes = 0
        self._window: tuple[int, int, Window] | None = None
        self._wake: threading.Event | None = None
        self.close = recording.subscribe(self._take)
        self._catch_up()

    # --- the appending thread ------------------------------------------------------------------

    def _take(self, batch: Batch) -> None:
        records = batch.records
        in_steps = records["step"] >= 0
        ended = records["step"][(records["kind"] == Kind.STEP) & (records["end_ns"] > 0)]
        with self._lock:
            self._version += 1
            self._heard = time.monotonic()
            if in_steps.any():
                numbers = records["step"][in_steps]
                self._dirty_from = min(self._dirty_from, int(numbers.min()))
                self._begun[batch.rank] = max(self._begun.get(batch.rank, -1), int(numbers.max()))
            if len(ended):
                before = self._completed.get(batch.rank, -1)
                self._completed[batch.rank] = max(before, int(ended.max()))
        if self._wake is not None:
            self._wake.set()

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

    # --- any thread ----------------------------------------------------------------------------

    def pulse(self) -> Pulse:
        """The counts of this moment."""
        with self._lock:
            return Pulse(self._version, dict(self._completed), dict(self._begun), self._heard)

    @property
    def newest_complete(self) -> int:
        """The newest step that every rank completed, -1 for none."""
        with self._lock:
            ranks = set(self._begun) | set(self._completed)
            return min((self._completed.get(rank, -1) for rank in ranks), default=-1)

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
        """What views of a step are drawn from; ``step`` None takes the newest."""
        with self._looking:
            shown = self.newest() if step is None else step
            history = self._history()
            window = self._of_step(shown)
        return Moment(window, shown, history, hint, width_px)

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
            self._tables = _joined(self._tables, self._tables_of(first, last), first, last)
        changes = self._changes.read(self.recording)
        self._tables = dataclasses.replace(self._tables, changes=changes)
        return self._tables

    def _tables_of(self, first: int, last: int) -> History:
        # With the step before: how long after it a step began is a number of the step.
        found = self.recording.records(steps=range(max(first - 1, 0), last + 1))
        if len(found) > _MOST_RECORDS:
            # Few steps of very many records: the newest of them, so that a look stays short.
            per_step = len(found) / (last - first + 2)
            first = last - max(1, int(_MOST_RECORDS / per_step)) + 1
            found = found[found["step"] >= first - 1]
        window = Window(self.recording, found)
        tables = (steps(window), buffers(window), _broadcasts(window))
        return History(*(table[table["step"] >= first] for table in tables))

    def _of_step(self, step: int | None) -> Window:
        """The window of one step, kept until a batch comes."""
        version = self.pulse().version
        number = -2 if step is None else step
        if self._window is not None and self._window[:2] == (version, number):
            return self._window[2]
        failures = self.recording.notes(Failure)
        if step is None:
            window = Window(self.recording, self.recording.records(steps=[]))
        elif step < 0 or any(note.step < 0 for note in failures):
            # Failures outside of steps are told at the step that was begun before them.
            found = self.recording.records(steps=[-1, max(step, -1)])
            window = Window(self.recording, found, narrow=False)
        else:
            window = Window(self.recording, self.recording.records(steps=step))
        self._window = (version, number, window)
        return window

    def _has_construction(self) -> bool:
        return bool(len(self.recording.records(kinds=range(1, 9), steps=-1)))


def no_tables() -> History:
    """The tables of no step."""

    def empty(*names: str) -> pd.DataFrame:
        return pd.DataFrame({name: pd.Series([], dtype="float64") for name in names})

    return History(
        empty("step", "rank", "begin_ns", "step_ms", *_COMMUNICATION),
        empty("step", "rank", "module", "broadcasts", "bytes", "sync_ms"),
        empty("step", "rank", "dtype", "broadcasts", "bytes"),
    )


def _joined(old: History, new: History, first: int, last: int) -> History:
    def joined(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
        kept = before[(before["step"] < first) & (before["step"] > last - HISTORY_STEPS)]
        return pd.concat([kept, after], ignore_index=True) if len(kept) else after

    return History(
        joined(old.steps, new.steps),
        joined(old.buffers, new.buffers),
        joined(old.broadcasts, new.broadcasts),
        old.changes,
    )


def _broadcasts(window: Window) -> pd.DataFrame:
    """Collectives of buffers by step, rank and dtype: how many, and their bytes."""
    found = calls(window)
    found = found[found["cause"] == Cause.BUFFERS]
    texts, position = label_texts(window, found)
    dtypes = np.array([text.partition(" ")[2] for text in texts], object)
    table = pd.DataFrame(
        {
            "step": found["step"].astype(np.int64),
            "rank": found["rank"].astype(np.int64),
            "dtype": dtypes[position] if len(found) else np.zeros(0, object),
            "bytes": found["bytes"].astype(np.int64),
        }
    )
    groups = table.groupby(["step", "rank", "dtype"], sort=True)["bytes"]
    return groups.agg(broadcasts="size", bytes="sum").reset_index()
