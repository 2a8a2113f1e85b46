"""A part of a recording that analysis reads like the whole: some records, and the notes to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from ddpviz.analysis.part import Part
from ddpviz.events import Configuration, Failure, Module, Plan
from ddpviz.recording import Recording

_NoteType = TypeVar("_NoteType")

#: Notes of one DDP module, and the field that names it: there are new ones at every re-wrap, so a
#: long session has thousands that no record here belongs to.
_OF_MODULE: dict[type, str] = {Module: "id", Plan: "module", Configuration: "module"}


class Window(Part):
    """``records`` of a recording, and its notes as far as these records need them."""

    def __init__(
        self,
        recording: Recording,
        records: np.ndarray,
        failures: Sequence[Failure] = (),
        *,
        narrow: bool = True,
    ) -> None:
        """``failures``: those that are told here. ``narrow``: leave out notes of modules that no
        record belongs to."""
        super().__init__(recording, records)
        self._failures = failures
        self._modules = frozenset(np.unique(records["module"]).tolist()) if narrow else None
        self._notes: dict[tuple[type, int | None], list[Any]] = {}

    def notes(self, kind: type[_NoteType], /, rank: int | None = None) -> list[_NoteType]:
        """Notes of a type, of one rank or all, in the order they came."""
        key = kind, rank
        if key not in self._notes:
            found = self.whole.notes(kind, rank=rank)
            if kind is Failure:
                found = [note for note in found if note in self._failures]
            field = _OF_MODULE.get(kind)
            if field is not None and self._modules is not None:
                found = [note for note in found if getattr(note, field) in self._modules]
            self._notes[key] = found
        return self._notes[key]
