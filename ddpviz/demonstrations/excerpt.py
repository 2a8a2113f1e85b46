"""What a recording has of one demonstration: read once, so it stays when the session goes on."""

from __future__ import annotations

from typing import Any, TypeVar, get_args

import numpy as np

from ddpviz.analysis.part import Part
from ddpviz.analysis.source import Source
from ddpviz.events import NO_MODULE, Failure, Kind, Label, Module, Note
from ddpviz.recording import Recording

_NoteType = TypeVar("_NoteType")
_Notes = dict[type, list[tuple[int, Any]]]


class Excerpt(Part):
    """Records and notes of some steps, and of what was outside of steps; a ``Source``.

    ``first``, ``last``: its steps, by the recording's count.
    """

    def __init__(
        self, recording: Source, records: np.ndarray, notes: _Notes, first: int, last: int
    ) -> None:
        super().__init__(recording, records)
        self._notes = notes
        self.first, self.last = first, last

    @classmethod
    def taken(cls, recording: Recording, first: int, after_ns: int) -> Excerpt:
        """All from step ``first`` on; outside of steps, what began after ``after_ns`` (epoch)."""
        last = recording.last_step
        records = recording.records(steps=[-1, *range(first, last + 1)])
        records = records[(records["step"] >= 0) | (records["begin_ns"] > after_ns)]
        modules = {*np.unique(records["module"]).tolist()} - {NO_MODULE}
        notes: _Notes = {}
        for kind in get_args(Note):
            if kind is not Label:
                notes[kind] = [
                    (rank, note)
                    for rank in recording.ranks
                    for note in recording.notes(kind, rank=rank)
                    if _belongs(note, modules, first, after_ns)
                ]
        return cls(recording, records, notes, first, last)

    def of(self, step: int) -> Excerpt:
        """One step alone; -1: what was outside of steps."""
        return Excerpt(self.whole, self.records(steps=step), self._notes, self.first, self.last)

    @property
    def steps(self) -> range:
        """By the recording's count."""
        return range(self.first, self.last + 1)

    def notes(self, kind: type[_NoteType], /, rank: int | None = None) -> list[_NoteType]:
        """Notes of a type, of one rank or all."""
        return [note for of, note in self._notes.get(kind, ()) if rank in (None, of)]

    def per_step(self, kind: Kind, rank: int = 0, cause: int | None = None) -> list[int]:
        """How many records of a kind (and cause) each step has on a rank."""
        found = self.records(kinds=kind, ranks=rank)
        if cause is not None:
            found = found[found["cause"] == cause]
        return [int((found["step"] == step).sum()) for step in self.steps]


def _belongs(note: Any, modules: set[int], first: int, after_ns: int) -> bool:
    if isinstance(note, Failure):  # of ranks that were restarted before it
        return note.time_ns > after_ns
    module = note.id if isinstance(note, Module) else getattr(note, "module", None)
    step = getattr(note, "step", -1)
    return (module is None or module in modules) and (step < 0 or step >= first)
