"""The fingerprints of the last sampled steps: a look costs the same however many there are."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from ddpviz.analysis.part import Part
from ddpviz.analysis.source import Source
from ddpviz.events import Fingerprints

_NoteType = TypeVar("_NoteType")

#: What to do where there are none.
HOW_TO = (
    "fingerprints tell: session.fingerprints(every=1) or the switch “fingerprints” takes them in "
    "a session, attach(…, fingerprints=1) in a script"
)


class Sampled(Part):
    """A source with no fingerprints but those of ``steps``. ``complete``: there are no older
    ones."""

    def __init__(self, source: Source, steps: tuple[int, ...], complete: bool) -> None:
        super().__init__(source)
        self.steps, self.complete = steps, complete

    def notes(self, kind: type[_NoteType], /, rank: int | None = None) -> list[_NoteType]:
        """As the source's, without fingerprints of other steps."""
        found = super().notes(kind, rank=rank)
        if kind is not Fingerprints:
            return found
        first, last = (self.steps[0], self.steps[-1]) if self.steps else (0, -1)
        return [note for note in found if first <= cast(Any, note).step <= last]


def sampled(source: Source, steps: int, last: int | None = None) -> Sampled:
    """The last so many sampled steps, up to ``last`` where it is given."""
    every = {note.step for note in source.notes(Fingerprints) if note.step >= 0}  # no initial ones
    found = sorted(step for step in every if last is None or step <= last)
    return Sampled(source, tuple(found[-steps:]), len(found) <= steps)
