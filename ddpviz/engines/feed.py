"""Batches of all ranks, put in order before they reach the recording."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ddpviz.events import Batch


class Feed:
    """Takes packed batches from any thread; hands each rank's on in its order of sequence.

    A batch that comes early waits for those before it: they may arrive on another way (resent
    after a chunk). :meth:`missing` names them. :meth:`release` gives up waiting, and the
    recording then shows the gap.
    """

    def __init__(self, append: Callable[[Batch], None]):
        self._append = append
        self._lock = threading.Lock()
        self._next: dict[int, int] = {}
        self._early: dict[int, dict[int, Batch]] = {}

    def receive(self, data: bytes) -> None:
        """One packed batch. Twice the same is taken once."""
        batch = Batch.from_bytes(data)
        with self._lock:
            early = self._early.setdefault(batch.rank, {})
            if batch.sequence >= self._next.get(batch.rank, 0):
                early[batch.sequence] = batch
            self._hand_on(batch.rank)

    def missing(self, rank: int, sent: int) -> list[int]:
        """Sequence numbers below ``sent`` that have not come."""
        with self._lock:
            early = self._early.get(rank, {})
            return [n for n in range(self._next.get(rank, 0), sent) if n not in early]

    def release(self, rank: int) -> None:
        """Hand on what waits behind a gap."""
        with self._lock:
            early = self._early.get(rank, {})
            while early:
                self._next[rank] = min(early)
                self._hand_on(rank)

    def _hand_on(self, rank: int) -> None:
        early = self._early.get(rank, {})
        while (batch := early.pop(self._next.get(rank, 0), None)) is not None:
            self._next[rank] = batch.sequence + 1
            self._append(batch)
