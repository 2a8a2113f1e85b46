"""The fingerprints of the last sampled steps: a look costs the same however many there are."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, TypeVar, cast

import numpy as np

from ddpviz.analysis.source import Source
from ddpviz.events import Fingerprints

_NoteType = TypeVar("_NoteType")

#: What to do where there are none.
HOW_TO = (
    "fingerprints tell: session.fingerprints(every=1) or the switch “fingerprints” takes them in "
    "a session, attach(…, fingerprints=1) in a script"
)


@dataclasses.dataclass(frozen=True)
class Sampled:
    """A source with no fingerprints but those of ``steps``. ``whole``: there are no older ones."""

    source: Source
    steps: tuple[int, ...]
    whole: bool

    @property
    def ranks(self) -> list[int]:
        """Ranks heard of."""
        return self.source.ranks

    def records(
        self,
        kinds: Iterable[int] | int | None = None,
        ranks: Iterable[int] | int | None = None,
        steps: Iterable[int] | int | None = None,
    ) -> np.ndarray:
        """As the source's."""
        return self.source.records(kinds, ranks, steps)

    def notes(self, kind: type[_NoteType], /, rank: int | None = None) -> list[_NoteType]:
        """As the source's, without fingerprints of other steps."""
        found = self.source.notes(kind, rank=rank)
        if kind is not Fingerprints:
            return found
        first, last = (self.steps[0], self.steps[-1]) if self.steps else (0, -1)
        return [note for note in found if first <= cast(Any, note).step <= last]

    def label(self, rank: int, id: int, /) -> str:
        """As the source's."""
        return self.source.label(rank, id)


def sampled(source: Source, steps: int, last: int | None = None) -> Sampled:
    """The last so many sampled steps, up to ``last`` where it is given."""
    every = {note.step for note in source.notes(Fingerprints) if note.step >= 0}  # no initial ones
    found = sorted(step for step in every if last is None or step <= last)
    return Sampled(source, tuple(found[-steps:]), len(found) <= steps)
