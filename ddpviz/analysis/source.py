"""What analysis needs of a recording: four readers, so that any source of records works."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

import numpy as np

_NoteType = TypeVar("_NoteType")


class Source(Protocol):
    """Records and notes of some ranks; ``ddpviz.recording.Recording`` is one."""

    @property
    def ranks(self) -> list[int]:
        """Ranks heard of."""

    def records(
        self,
        kinds: Iterable[int] | int | None = None,
        ranks: Iterable[int] | int | None = None,
        steps: Iterable[int] | int | None = None,
    ) -> np.ndarray:
        """Records of dtype RECORD of these kinds, ranks and steps; None means all."""

    def notes(self, kind: type[_NoteType], /, rank: int | None = None) -> list[_NoteType]:
        """Notes of a type, of one rank or all, in the order they came."""

    def label(self, rank: int, id: int, /) -> str:
        """Text of a label id."""


def whole_of(source: Source) -> Source:
    """The recording that a source is a part of, which it names ``whole``; else itself."""
    while (whole := getattr(source, "whole", None)) is not None:
        source = whole
    return source
