"""Writes one rank's files of a recording as its batches come."""

from __future__ import annotations

import io
import json
import os
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa

from ddpviz.events import Batch, note_to_json
from ddpviz.recording import files
from ddpviz.recording.attachments import UNNUMBERED, attachment_key
from ddpviz.recording.reading import whole_part

_SCHEMA_MESSAGE = files.SCHEMA.serialize().to_pybytes()


class RankWriter:
    """A sink: call it with the batches of one rank; each is handed to the OS before it returns.

    ``compression``: "lz4" costs 0.1 ms of CPU per 500 records, "zstd" 0.35 ms and half the bytes.
    Existing files are continued: what a crash cut off is removed, what it left in a ring is
    written and the ring removed, batches follow as the next attachment. So make the writer before
    the recorder that uses the ring, and only when the process that wrote before is gone.
    Raises OSError where the disk does; the file then ends with the last whole batch.
    """

    def __init__(self, directory: str | Path, rank: int, compression: str = "lz4") -> None:
        self.rank = rank
        self.directory = Path(directory)
        files.describe(self.directory)
        self._lock = threading.Lock()
        whole = whole_part(self.directory, rank)
        self._attachment = whole.attachments
        self._began = False
        self._columns = _Appended(files.arrow_path(directory, rank), whole.size_bytes)
        notes = files.notes_path(directory, rank)
        lines_bytes = notes.read_bytes().rfind(b"\n") + 1 if notes.exists() else 0
        self._lines = _Appended(notes, lines_bytes)
        self._buffer = io.BytesIO()
        options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
        self._stream = pa.ipc.new_stream(self._buffer, files.SCHEMA, options=options)
        for attachment, records in whole.rings.items():
            self.write(Batch(rank, UNNUMBERED, records), attachment)
        for ring in whole.ring_files:
            ring.unlink()

    def __call__(self, batch: Batch) -> None:
        """Writes a batch; number 0 with a Process note begins the next attachment."""
        if batch.sequence == 0 and attachment_key(batch.notes):
            self._attachment += self._began
            self._began = True
        self.write(batch, self._attachment)

    def write(self, batch: Batch, attachment: int) -> None:
        """Writes a batch of the attachment of this number, as the file counts them from 0."""
        if batch.rank != self.rank:
            raise ValueError(
                f"found a batch of rank {batch.rank}, expected rank {self.rank}: "
                "give every rank its own RankWriter"
            )
        with self._lock:
            if self._columns.closed:
                raise ValueError(f"the writer of rank {self.rank} is closed: make a new one")
            place = {"attachment": attachment, "sequence": batch.sequence}
            # Notes first: a crash between the two leaves a label without records, not the reverse.
            # Under a name of its own: a note may have a field of either name.
            batch_of = {"batch": [attachment, batch.sequence]}
            lines = (json.dumps({**note_to_json(note), **batch_of}) for note in batch.notes)
            self._lines.append("".join(f"{line}\n" for line in lines).encode())
            place["notes"] = len(batch.notes)
            self._columns.append(self._encode(batch.records, place))

    def _encode(self, records: np.ndarray, place: dict[str, int]) -> bytes:
        columns = files.to_arrow(records)
        checked = {**place, "crc32": files.checksum(columns, **place)}
        metadata = {name: str(value) for name, value in checked.items()}
        self._stream.write_batch(columns, custom_metadata=metadata)
        message = self._buffer.getvalue().removeprefix(_SCHEMA_MESSAGE)
        self._buffer.seek(0)
        self._buffer.truncate()
        # The stream gives its schema once, but that write may have failed.
        return message if self._columns.size_bytes else _SCHEMA_MESSAGE + message

    def __repr__(self) -> str:
        return f"<the files of rank {self.rank} in {self.directory}>"

    def close(self) -> None:
        """Closes the files. Closing twice is fine."""
        with self._lock:
            self._columns.close()
            self._lines.close()


class _Appended:
    """A file that grows by whole pieces: written at once, taken back where the disk refuses."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.closed = False
        self._path = path
        self._torn = True  # whatever lies beyond size_bytes
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._cut()

    def append(self, data: bytes) -> None:
        if os.fstat(self._descriptor).st_nlink == 0:
            raise FileNotFoundError(f"{self._path} was removed while it was written")
        self._cut()
        self._torn = True
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except BaseException:
            self._cut()
            raise
        self._torn = False
        self.size_bytes += len(data)

    def _cut(self) -> None:
        if self._torn:
            os.ftruncate(self._descriptor, self.size_bytes)
            self._torn = False

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            os.close(self._descriptor)
