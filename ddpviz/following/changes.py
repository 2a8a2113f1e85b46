"""What was configured when: configurations of the record, each against the one before it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ddpviz.events import Configuration, Kind
from ddpviz.recording import Recording
from ddpviz.views.live import Change

#: Changes that are kept: views mark those of the last steps only.
_KEPT = 50


class Changes:
    """Reads only what came since it was last asked."""

    def __init__(self) -> None:
        self._read = 0
        self._before: dict[int, dict[str, Any]] = {}  # by module
        self._pending: list[tuple[int, str]] = []
        self._found: list[Change] = []

    def read(self, recording: Recording) -> tuple[Change, ...]:
        """The changes up to now, in the order of steps."""
        rank = min(recording.ranks, default=0)
        notes = recording.notes(Configuration, rank=rank)
        for note in notes[self._read :]:
            before = self._before_of(note, notes)
            if before is not None and (text := _difference(before, note.values)):
                self._pending.append((note.time_ns, text))
            self._before[note.module] = note.values
        self._read = len(notes)
        if self._pending:
            self._place(recording, rank)
        return tuple(self._found)

    def _before_of(self, note: Configuration, notes: list[Configuration]) -> dict[str, Any] | None:
        """What the same module had before, or the one that this one was made in place of.

        Modules that were there at once, as of a generator and a discriminator, differ and nothing
        was changed.
        """
        known = self._before.get(note.module)
        if known is not None or not self._before:
            return known
        module = max(self._before)
        goes_on = any(one.module == module and one.time_ns > note.time_ns for one in notes)
        return None if goes_on else self._before[module]

    def _place(self, recording: Recording, rank: int) -> None:
        """A change belongs to the first step that its rank began after it."""
        since_ns = min(time_ns for time_ns, _ in self._pending)
        begun = recording.window(since_ns, 2**63 - 1, kinds=Kind.STEP, ranks=rank)
        begun = begun[begun["step"] >= 0]
        waiting = []
        for time_ns, text in self._pending:
            after = begun[begun["begin_ns"] >= time_ns]
            if len(after):
                step = int(after["step"][np.argmin(after["begin_ns"])])
                self._found.append(Change(step, text))
            else:
                waiting.append((time_ns, text))
        self._pending = waiting[-_KEPT:]
        self._found = self._found[-_KEPT:]


def _difference(before: dict[str, Any], after: dict[str, Any]) -> str:
    names = [name for name in after if before.get(name, "") != after[name]]
    return ", ".join(f"{name}={after[name]!r}" for name in names)
