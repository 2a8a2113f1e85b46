"""A part of a recording that analysis reads like the whole: some records, and the notes to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from ddpviz.analysis.tables import among
from ddpviz.events import Configuration, Failure, Module, Plan
from ddpviz.recording import Recording

_NoteType = TypeVar("_NoteType")

#: Notes of one DDP module, and the field that names it: there are new ones at every re-wrap, so a
#: long session has thousands that no record here belongs to.
_OF_MODULE: dict[type, str] = {Module: "id", Plan: "module", Configuration: "module"}


class Window:
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
        #: What it is a part of.
        self.whole = recording
        self._records = records
        self._failures = failures
        self._modules = frozenset(np.unique(records["module"]).tolist()) if narrow else None
        self._notes: dict[tuple[type, int | None], list[Any]] = {}

    @property
    def ranks(self) -> list[int]:
        """Ranks heard of, in all of the recording."""
        return self.whole.ranks

    def records(
        self,
        kinds: Iterable[int] | int | None = None,
        ranks: Iterable[int] | int | None = None,
        steps: Iterable[int] | int | None = None,
    ) -> np.ndarray:
        """Records of these kinds, ranks and steps; None means all of the window."""
        found = self._records
        if kinds is not None:
            found = found[among(found["kind"], *_listed(kinds))]
        for field, wanted in (("rank", ranks), ("step", steps)):
            if wanted is not None:
                values = _listed(wanted)
                one = len(values) == 1
                holds = found[field] == values[0] if one else np.isin(found[field], values)
                found = found[holds]
        return found

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

    def label(self, rank: int, id: int, /) -> str:
        """Text of a label id."""
        return self.whole.label(rank, id)


def _listed(values: Iterable[int] | int) -> list[int]:
    return [int(values)] if isinstance(values, (int, np.integer)) else [int(v) for v in values]
