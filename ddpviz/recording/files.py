"""The directory format: names of files, and records as Arrow columns.

A recording is a directory::

    recording.json           {"format": "ddpviz recording", "version": 1}
    rank-0003.arrow          Arrow IPC stream, one column per field of events.RECORD, compressed
    rank-0003.notes.jsonl    one note per line, with the number of the batch that brought it
    rank-0003.ring           only after a crash: what the probe had not handed on
    comparison.json          only after a comparison: which steps were whose

One batch is one Arrow message; its metadata give ``attachment`` (0, 1, … for every time a rank
began in this file), ``sequence``, the number of its ``notes`` and a ``crc32`` over all of it. No
end-of-stream mark is written: the file is valid after every batch, any reader of Arrow streams
reads it, and a later attachment appends to it.
"""

from __future__ import annotations

import json
import os
import re
import threading
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa

from ddpviz.events import RECORD, VERSION

FORMAT = "ddpviz recording"
DESCRIPTION = "recording.json"
RANK_FILE = re.compile(r"rank-(\d+)\.(arrow|notes\.jsonl|ring(\.\d+)?)")

FIELDS: tuple[str, ...] = RECORD.names or ()
_TYPES = [pa.from_numpy_dtype(RECORD[name]) for name in FIELDS]
VERSION_KEY = b"ddpviz"  # in the schema's metadata; its value is events.VERSION
SCHEMA = pa.schema(
    [pa.field(name, kind, nullable=False) for name, kind in zip(FIELDS, _TYPES, strict=True)],
    {VERSION_KEY: str(VERSION).encode()},
)


def arrow_path(directory: str | Path, rank: int) -> Path:
    """Where the records of a rank lie."""
    return Path(directory) / f"rank-{rank:04d}.arrow"


def notes_path(directory: str | Path, rank: int) -> Path:
    """Where the notes of a rank lie."""
    return Path(directory) / f"rank-{rank:04d}.notes.jsonl"


def ring_path(directory: str | Path, rank: int) -> Path:
    """Where the probe of a rank should keep its ring, so that :func:`load` finds it."""
    return Path(directory) / f"rank-{rank:04d}.ring"


def ring_paths(directory: Path, rank: int) -> list[Path]:
    """The rings that are there: those a later ring pushed aside (``.1``, ``.2``, …), then it."""
    ring = ring_path(directory, rank)
    aside = sorted(directory.glob(f"{ring.name}.*"), key=lambda path: (len(path.name), path.name))
    return [path for path in (*aside, ring) if path.exists() and RANK_FILE.fullmatch(path.name)]


def ranks_in(directory: Path) -> list[int]:
    """The ranks that have a file of any sort here."""
    matches = (RANK_FILE.fullmatch(entry.name) for entry in directory.iterdir())
    return sorted({int(match[1]) for match in matches if match})


def describe(directory: Path, dropped: int = 0) -> None:
    """Makes the directory a recording, unless it is one. ``dropped``: records left out of it."""
    directory.mkdir(parents=True, exist_ok=True)
    if (directory / DESCRIPTION).exists():
        return
    description = {"format": FORMAT, "version": VERSION, "dropped": dropped}
    draft = directory / f".{DESCRIPTION}.{os.getpid()}.{threading.get_ident()}"
    draft.write_text(json.dumps(description) + "\n")
    os.replace(draft, directory / DESCRIPTION)  # whole or not at all; ranks may race


def to_arrow(records: np.ndarray) -> pa.RecordBatch:
    """RECORD rows as one Arrow column per field."""
    # From buffers: pa.array() looks at every value for nulls, three times the cost.
    columns = [
        pa.Array.from_buffers(
            kind, len(records), [None, pa.py_buffer(np.ascontiguousarray(records[name]))]
        )
        for name, kind in zip(FIELDS, _TYPES, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def from_arrow(batch: pa.RecordBatch) -> np.ndarray:
    """The inverse of :func:`to_arrow`; fields the file does not have are 0. Raises ValueError."""
    records = np.zeros(batch.num_rows, RECORD)
    for name in FIELDS:
        if name in batch.schema.names:
            records[name] = batch.column(name).to_numpy(zero_copy_only=True)
    return records


def checksum(batch: pa.RecordBatch, attachment: int, sequence: int, notes: int) -> int:
    """CRC-32 of its place and the values of all columns, one after the other."""
    found = zlib.crc32(f"{attachment} {sequence} {notes}".encode())
    for column in batch.columns:
        found = zlib.crc32(column.to_numpy(zero_copy_only=True), found)
    return found
