"""A part of a source, which analysis reads like the whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import numpy as np

from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import among

_NoteType = TypeVar("_NoteType")


class Part:
    """Some records of a source, or all of them; its notes, as far as a subclass leaves none out.

    ``whole``: what it is a part of. ``records``: None for all of them.
    """

    def __init__(self, whole: Source, records: np.ndarray | None = None) -> None:
        self.whole = whole
        self._records = records

    @property
    def ranks(self) -> list[int]:
        """Ranks heard of, in all of the whole."""
        return self.whole.ranks

    def records(
        self,
        kinds: Iterable[int] | int | None = None,
        ranks: Iterable[int] | int | None = None,
        steps: Iterable[int] | int | None = None,
    ) -> np.ndarray:
        """Records of these kinds, ranks and steps; None means all of the part."""
        found = self._records
        if found is None:
            return self.whole.records(kinds, ranks, steps)
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
        return self.whole.notes(kind, rank=rank)

    def label(self, rank: int, id: int, /) -> str:
        """Text of a label id."""
        return self.whole.label(rank, id)


def _listed(values: Iterable[int] | int) -> list[int]:
    return [int(values)] if isinstance(values, (int, np.integer)) else [int(v) for v in values]
