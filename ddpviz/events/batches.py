"""Batches: what one rank sends at a time, as one packed message."""

from __future__ import annotations

import dataclasses
import json
import struct

import numpy as np

from ddpviz.events.encoding import Note, note_from_json, note_to_json
from ddpviz.events.records import RECORD, VERSION

_MAGIC = b"DDPV"
_HEADER = struct.Struct("<4sHHIII")  # magic, version, rank, sequence, length of notes, rows


@dataclasses.dataclass(frozen=True)
class Batch:
    """What one rank sends at a time: ``sequence`` counts from 0 without gaps per rank."""

    rank: int
    sequence: int
    records: np.ndarray  # dtype RECORD
    notes: tuple[Note, ...] = ()

    def to_bytes(self) -> bytes:
        """One packed message: header, notes as JSON, records as they lie in memory."""
        notes = json.dumps([note_to_json(note) for note in self.notes]).encode()
        header = _HEADER.pack(
            _MAGIC, VERSION, self.rank, self.sequence, len(notes), len(self.records)
        )
        return header + notes + self.records.tobytes()

    @staticmethod
    def from_bytes(data: bytes) -> Batch:
        """The inverse of :meth:`to_bytes`. Raises ValueError for anything else."""
        if len(data) < _HEADER.size or data[:4] != _MAGIC:
            raise ValueError("found bytes that do not begin as a ddpviz batch does")
        _, version, rank, sequence, notes_length, rows = _HEADER.unpack_from(data)
        if version > VERSION:
            raise ValueError(
                f"found a batch of version {version}, expected at most {VERSION}: update ddpviz"
            )
        start = _HEADER.size + notes_length
        if len(data) != start + rows * RECORD.itemsize:
            raise ValueError(
                f"found a batch of {len(data)} bytes, expected {start + rows * RECORD.itemsize}"
            )
        notes = tuple(note_from_json(item) for item in json.loads(data[_HEADER.size : start]))
        records = np.frombuffer(data, RECORD, rows, start)
        return Batch(rank, sequence, records, notes)
