"""How a batch becomes part of a recording: new or seen, what is missing, notes and labels kept.

The caller holds one lock around :meth:`Intake.take`; reading the store needs none of it.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from collections.abc import Hashable

import numpy as np

from ddpviz.events import (
    NO_GROUP,
    NO_MODULE,
    RECORD,
    Batch,
    Buffers,
    Fingerprints,
    Flag,
    Kind,
    Label,
    Note,
    Projections,
    Unused,
    Walk,
)
from ddpviz.recording import store
from ddpviz.recording.attachments import UNNUMBERED, Attachments, rows_as_bytes

#: Tensors and frames kept in memory of notes that may come with every step (some 100 MB).
BULK_BOUND = 1_000_000


@dataclasses.dataclass(frozen=True)
class Taken:
    """A batch taken in: as the recording numbers it, as it came, and its rank's attachment."""

    stored: Batch
    raw: Batch
    ordinal: int


class Intake:
    """The writing side of a recording's state."""

    def __init__(self, rows: store.Store) -> None:
        self.notes: dict[type, deque[tuple[int, Note]]] = {}
        self.labels: dict[tuple[int, int], str] = {}
        self.ranks: set[int] = set()
        self.missing: dict[int, int] = {}  # batches by rank
        self._bulk: Counter[type] = Counter()
        self._store = rows
        self._attachments = Attachments()

    def take(self, batch: Batch, source: Hashable | int | None) -> Taken | None:
        """Takes a batch in; None for one that brings nothing new.

        ``source``: see :meth:`Attachments.of`. Raises ValueError for records of another dtype.
        """
        if batch.records.dtype != RECORD:
            raise ValueError(
                f"found records of dtype {batch.records.dtype}, expected ddpviz.events.RECORD"
            )
        attachment = self._attachments.of(batch, source, self._store.last_step)
        salvage = batch.sequence == UNNUMBERED
        missing = 0 if salvage else attachment.admit(batch.sequence)
        if missing is None:
            return None
        raw = attachment.not_salvaged(batch)
        records = attachment.offsets.records(raw.records)
        if salvage:
            new = self._not_here(batch.rank, records)
            records = records[new]
            raw = dataclasses.replace(raw, records=raw.records[new])
            if not len(records) and not raw.notes:
                return None
            attachment.salvaged.update(rows_as_bytes(raw.records))
            attachment.salvaged_notes.extend(raw.notes)
        notes = tuple(attachment.offsets.note(note) for note in raw.notes)
        if missing:
            records = np.concatenate([self._gap(batch.rank, missing, records), records])
        self._keep(batch.rank, records, notes)
        return Taken(Batch(batch.rank, batch.sequence, records, notes), raw, attachment.ordinal)

    def _keep(self, rank: int, records: np.ndarray, notes: tuple[Note, ...]) -> None:
        self.ranks.add(rank)
        self._attachments.seen(notes)
        for note in notes:
            found = self.notes.setdefault(type(note), deque())
            found.append((rank, note))
            if _bulk(note):
                self._bulk[type(note)] += _bulk(note)
                while self._bulk[type(note)] > BULK_BOUND and len(found) > 1:
                    self._bulk[type(note)] -= _bulk(found.popleft()[1])
            if isinstance(note, Label):
                self.labels[rank, note.id] = note.text
        gaps = records["index"][records["kind"] == Kind.GAP]
        if len(gaps):
            self.missing[rank] = self.missing.get(rank, 0) + int(gaps.sum())
        self._store.append(records)

    def _not_here(self, rank: int, records: np.ndarray) -> np.ndarray:
        """Which of a ring's records are not in memory: the last batch may have brought them."""
        if not len(records):
            return np.zeros(0, bool)
        begin_ns = int(records["begin_ns"].min())
        end_ns = int(np.maximum(records["begin_ns"], records["end_ns"]).max())
        found = store.window(self._store.chunks(), begin_ns, end_ns, None, rank)
        here = set(rows_as_bytes(found))
        return np.array([row not in here for row in rows_as_bytes(records)], bool)

    def _gap(self, rank: int, missing: int, records: np.ndarray) -> np.ndarray:
        """A GAP record, at the begin of the first record that came after it."""
        gap = np.zeros(1, RECORD)
        time_ns = int(records["begin_ns"][0]) if len(records) else self._store.end_ns
        gap["begin_ns"] = gap["end_ns"] = time_ns
        gap["step"] = records["step"][0] if len(records) else -1
        gap["bytes"] = gap["iteration"] = gap["sequence"] = -1
        gap["index"], gap["rank"], gap["kind"], gap["flags"] = missing, rank, Kind.GAP, Flag.DERIVED
        gap["module"], gap["group"] = NO_MODULE, NO_GROUP
        return gap


def _bulk(note: Note) -> int:
    """How many tensors or frames a note that may come with every step is about; 0 for another."""
    if isinstance(note, Fingerprints):
        return len(note.hashes)
    if isinstance(note, Projections):
        return 8 + len(note.values)
    if isinstance(note, Unused):  # a model that leaves out others in each step
        return 8 + len(note.parameters)
    if isinstance(note, Buffers):
        return 8 + len(note.reassigned)
    return len(note.frames) if isinstance(note, Walk) else 0
