"""Records in memory: chunks of rows with the times and steps they span, the oldest dropped."""

from __future__ import annotations

import dataclasses
import threading
from collections import deque
from collections.abc import Iterable

import numpy as np

from ddpviz.events import RECORD

#: Rows of a chunk (0.85 MB). Small enough that a window of a second reads one or two, large
#: enough that 10 million rows are 611 index entries.
CHUNK_ROWS = 16_384


@dataclasses.dataclass(frozen=True)
class Chunk:
    """``records`` (a view, never written again) and what they span, both ends included.

    ``begin_ns``, ``end_ns``: any record's times lie within. ``last_begin_ns``, ``first_end_ns``:
    a window that holds both overlaps every record.
    """

    records: np.ndarray
    begin_ns: int
    last_begin_ns: int
    first_end_ns: int
    end_ns: int
    first_step: int
    last_step: int

    def joined(self, earlier: Chunk, records: np.ndarray) -> Chunk:
        """The chunk over ``records`` that holds the earlier chunk's and this one's."""
        return Chunk(
            records,
            min(earlier.begin_ns, self.begin_ns),
            max(earlier.last_begin_ns, self.last_begin_ns),
            min(earlier.first_end_ns, self.first_end_ns),
            max(earlier.end_ns, self.end_ns),
            min(earlier.first_step, self.first_step),
            max(earlier.last_step, self.last_step),
        )


def chunk_of(records: np.ndarray) -> Chunk:
    """A chunk over these records (at least one)."""
    begins, steps = records["begin_ns"], records["step"]
    ends = np.maximum(begins, records["end_ns"])
    return Chunk(
        records,
        int(begins.min()),
        int(begins.max()),
        int(ends.min()),
        int(ends.max()),
        int(steps.min()),
        int(steps.max()),
    )


class Store:
    """At most ``bound`` records (rounded up to one chunk), in the order of appending.

    One lock, held for a copy of rows in or a copy of the chunk list out; filtering runs outside.
    """

    def __init__(self, bound: int) -> None:
        if bound < 1:
            raise ValueError(f"found a bound of {bound} records, expected at least 1")
        self._bound = bound
        self._chunk_rows = min(CHUNK_ROWS, max(1, bound // 8))
        self._lock = threading.Lock()
        self._sealed: deque[Chunk] = deque()
        self._rows = np.empty(self._chunk_rows, RECORD)
        self._active: Chunk | None = None  # over self._rows[:n]; replaced at every append
        self.dropped = 0  # records no longer in memory
        self.begin_ns = 0  # over all records ever appended; 0 before the first
        self.end_ns = 0
        self.last_step = -1

    def append(self, records: np.ndarray) -> None:
        """Copies rows of dtype RECORD in."""
        with self._lock:
            while len(records):
                used = 0 if self._active is None else len(self._active.records)
                part = records[: self._chunk_rows - used]
                records = records[len(part) :]
                self._rows[used : used + len(part)] = part
                self._extend(part, used + len(part))

    def _extend(self, part: np.ndarray, used: int) -> None:
        added = chunk_of(part)
        self.begin_ns = min(self.begin_ns or added.begin_ns, added.begin_ns)
        self.end_ns = max(self.end_ns, added.end_ns)
        self.last_step = max(self.last_step, added.last_step)
        earlier = added if self._active is None else self._active
        self._active = added.joined(earlier, self._rows[:used])
        if used == self._chunk_rows:
            self._sealed.append(self._active)
            self._active = None
            self._rows = np.empty(self._chunk_rows, RECORD)
            most = max(1, self._bound // self._chunk_rows - 1)  # the new one takes its part
            while len(self._sealed) > most:
                self.dropped += len(self._sealed.popleft().records)

    def chunks(self) -> list[Chunk]:
        """The chunks of this moment; what is appended later does not show in them."""
        with self._lock:
            return [*self._sealed] if self._active is None else [*self._sealed, self._active]

    @property
    def memory_bytes(self) -> int:
        """Memory held by rows, the unused part of the newest chunk included."""
        return (len(self._sealed) + 1) * self._chunk_rows * RECORD.itemsize

    def __len__(self) -> int:
        return sum(len(chunk.records) for chunk in self.chunks())


def window(
    chunks: Iterable[Chunk],
    begin_ns: int,
    end_ns: int,
    kinds: Iterable[int] | int | None,
    ranks: Iterable[int] | int | None,
) -> np.ndarray:
    """Records that overlap [begin_ns, end_ns]; an unknown end (0) counts as the begin."""
    wanted_kinds, wanted_ranks = _table(kinds, 256), _table(ranks, 65_536)
    parts = []
    for chunk in chunks:
        if chunk.begin_ns > end_ns or chunk.end_ns < begin_ns:
            continue
        records, rows = chunk.records, None
        if chunk.last_begin_ns > end_ns or chunk.first_end_ns < begin_ns:
            begins = records["begin_ns"]
            rows = np.flatnonzero(
                (begins <= end_ns) & ((begins >= begin_ns) | (records["end_ns"] >= begin_ns))
            )
        parts.append(_take(records, rows, wanted_kinds, wanted_ranks))
    return np.concatenate(parts) if parts else np.empty(0, RECORD)


def select(
    chunks: Iterable[Chunk],
    kinds: Iterable[int] | int | None,
    ranks: Iterable[int] | int | None,
    steps: Iterable[int] | int | None,
) -> np.ndarray:
    """Records of these kinds, ranks and steps; None means all of them."""
    wanted_kinds, wanted_ranks = _table(kinds, 256), _table(ranks, 65_536)
    wanted_steps = None if steps is None else np.unique(np.asarray(_listed(steps), np.int64))
    parts = []
    for chunk in chunks:
        rows = None
        if wanted_steps is not None:
            low = np.searchsorted(wanted_steps, chunk.first_step)
            high = np.searchsorted(wanted_steps, chunk.last_step, side="right")
            if low == high:
                continue
            rows = np.flatnonzero(np.isin(chunk.records["step"], wanted_steps[low:high]))
        parts.append(_take(chunk.records, rows, wanted_kinds, wanted_ranks))
    return np.concatenate(parts) if parts else np.empty(0, RECORD)


def _take(
    records: np.ndarray,
    rows: np.ndarray | None,
    kinds: np.ndarray | None,
    ranks: np.ndarray | None,
) -> np.ndarray:
    for field, wanted in (("kind", kinds), ("rank", ranks)):
        if wanted is not None:
            if rows is None:
                rows = np.flatnonzero(wanted[records[field]])
            else:
                rows = rows[wanted[records[field][rows]]]
    return records if rows is None else records.take(rows)


def _listed(values: Iterable[int] | int) -> list[int]:
    return [int(values)] if isinstance(values, (int, np.integer)) else [int(v) for v in values]


def _table(values: Iterable[int] | int | None, size: int) -> np.ndarray | None:
    """Which of 0 … size-1 are wanted, as a bool array to index with; None for all."""
    if values is None:
        return None
    wanted = np.zeros(size, bool)
    wanted[[value for value in _listed(values) if 0 <= value < size]] = True
    return wanted
