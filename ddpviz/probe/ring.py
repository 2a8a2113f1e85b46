"""A preallocated ring of records, in memory or in a file that outlives a killed process.

Torch-free. Writing costs one ``struct.pack_into``; nothing is allocated on the training thread.
With a path the ring is a shared memory map: what was written is in the page cache at once, so
``SIGKILL`` loses nothing; :func:`read_ring` reads back what no sink had taken yet.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ddpviz.events import RECORD, RECORD_STRUCT, VERSION
from ddpviz.probe.packed import layout, packed, unpack, whole

_HEADER = struct.Struct("<8sIIQQ")  # magic, version, rank, capacity, flushed
_HEADER_BYTES = 64
_FLUSHED_OFFSET = 24
_COUNT = struct.Struct("<Q")
_MAGIC = b"DDPVRING"
_SLOT_BYTES = RECORD.itemsize
#: Of a file, so much is in memory before training begins.
_TOUCHED_BYTES = 256 * 1024
_NOTHING = (0,) * 15  # a slot without a record, where a lap ends early
_pack_into = RECORD_STRUCT.pack_into


def _offset(slot: int) -> int:
    return _HEADER_BYTES + slot * _SLOT_BYTES


class RingFull(Exception):
    """No free slot, and nobody who would make room."""


def _refuse() -> None:
    raise RingFull


class Ring:
    """Single process, many writing threads, one taking thread at a time.

    ``capacity`` in slots (52 bytes, a record each). A file already at ``path`` was left by a
    killed process: it is kept beside the new one as ``<path>.1``, ``.2``, …. ``make_room`` is
    called by a writer that finds the ring full, ``wake`` by those that find it half full.
    """

    def __init__(
        self,
        capacity: int = 65_536,
        rank: int = 0,
        path: str | Path | None = None,
        make_room: Callable[[], None] = _refuse,
        wake: Callable[[], None] = lambda: None,
    ):
        size = _HEADER_BYTES + capacity * _SLOT_BYTES
        self.capacity = capacity
        self.path = Path(path) if path is not None else None
        if self.path is None:
            self._memory: Any = bytearray(size)
        else:
            _keep_leftover(self.path)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
            try:
                os.ftruncate(descriptor, size)
                _reserve(descriptor, size)
                os.write(descriptor, bytes(min(size, _TOUCHED_BYTES)))
                self._memory = mmap.mmap(descriptor, size)
            finally:
                os.close(descriptor)
        _HEADER.pack_into(self._memory, 0, _MAGIC, VERSION, rank, capacity, 0)
        self._slots = np.frombuffer(self._memory, RECORD, capacity, _HEADER_BYTES)
        self._make_room, self._wake = make_room, wake
        # Of a signal handler that runs in the middle of a write, on the same thread: its rows wait.
        self._lock = threading.RLock()
        self._writing = False
        self._later: list[tuple[int, ...]] = []
        self._written = 0
        self._skipped = 0  # of these, slots that were passed over
        self._began = 0  # the slot that was the first after a rewind
        self._taken = 0
        self._flushed = 0

    def write(self, *rows: tuple[int, ...]) -> None:
        """Records, each the fields of ``events.RECORD`` in order without ``spare``; all or none.

        A closed ring takes nothing. Raises RingFull.
        """
        count = len(rows)
        while True:
            with self._lock:
                if self._writing:
                    self._later += rows
                    return
                written = self._written
                waiting = written - self._flushed + count
                if waiting <= self.capacity:
                    self._writing = True
                    try:
                        for row in rows:
                            lap, slot = divmod(written, self.capacity)
                            _pack_into(
                                self._memory,
                                _HEADER_BYTES + slot * _SLOT_BYTES,
                                *row,
                                lap % 255 + 1,  # tells a reader of the file the slot's lap
                            )
                            written += 1
                    finally:
                        self._writing = False
                    self._written = written
                    break
                if self.capacity == 0:
                    return
            self._make_room()
        if waiting * 2 > self.capacity:
            self._wake()
        if self._later:
            self._write_later()

    def _write_later(self) -> None:
        with self._lock:
            rows, self._later = self._later, []
        self.write(*rows)

    def write_ready(self, header: tuple[int, ...], times: list[int]) -> None:
        """Grad-ready times of a backward, packed: see :mod:`ddpviz.probe.packed`.

        Raises RingFull.
        """
        packer, size = layout(len(times))
        size += 1
        if self._writing or 2 * size > self.capacity:  # it might never lie in one piece
            for record in _records(packed(header, times)):
                self.write(tuple(record.tolist())[:-1])
            return
        while True:
            with self._lock:
                if self.capacity == 0:
                    return
                written = self._written
                lap, slot = divmod(written, self.capacity)
                rest = self.capacity - slot
                skipped = rest if rest < size else 0  # the numbers lie in one piece
                waiting = written - self._flushed + skipped + size
                if waiting <= self.capacity:
                    self._writing = True
                    try:
                        for _ in range(skipped):
                            _pack_into(self._memory, _offset(slot), *_NOTHING, lap % 255 + 1)
                            slot += 1
                        if skipped:
                            lap, slot = lap + 1, 0
                        # The header last: once it is there, so is all that it announces.
                        packer.pack_into(self._memory, _offset(slot + 1), *times)
                        _pack_into(self._memory, _offset(slot), *header, lap % 255 + 1)
                    finally:
                        self._writing = False
                    self._written = written + skipped + size
                    break
            self._make_room()
        if waiting * 2 > self.capacity:
            self._wake()
        if self._later:
            self._write_later()

    def take(self) -> np.ndarray:
        """A copy of what was written since the last take. Its slots stay held until flushed."""
        with self._lock:
            slots = _slice(self._slots, self._taken, self._written)
            self._taken = self._written
        return _records(slots)

    def flushed(self) -> None:
        """All that was taken has reached its sinks: free the slots."""
        with self._lock:
            if self.capacity == 0:
                return
            self._flushed = self._taken
            used = self._written - self._began
            if used and self._written == self._taken and not self._writing:
                self._rewind(used)
            _COUNT.pack_into(self._memory, _FLUSHED_OFFSET, self._flushed)

    def _rewind(self, used: int) -> None:
        """Nothing waits, so the next lap begins now: with the slots whose memory is there already.

        Going on would write a page that nobody wrote before in every step of a small model, which
        of a file costs the training thread up to a millisecond each.
        """
        # Laps are counted in a byte: what is not written over in this one must look like none.
        self._slots["spare"][: min(used, self.capacity)] = 0
        begin = -(-self._written // self.capacity) * self.capacity
        self._skipped += begin - self._written
        self._began = self._written = self._taken = self._flushed = begin

    @property
    def pending(self) -> int:
        """Records written and not yet taken."""
        return self._written - self._taken

    @property
    def written(self) -> int:
        """Slots written since the ring was made."""
        return self._written - self._skipped

    def close(self, keep: bool = False) -> None:
        """Free the memory; remove the file where all in it has reached the sinks (unless kept)."""
        with self._lock:
            complete = self._flushed == self._written and not keep
            self._slots = np.zeros(0, RECORD)
            self._flushed = self._written = self._taken = self._began = self._skipped = 0
            self.capacity = 0
            if isinstance(self._memory, mmap.mmap):
                try:
                    self._memory.close()
                except BufferError:  # a view is still alive; the map goes with it
                    pass
        if complete and self.path is not None:
            self.path.unlink(missing_ok=True)


def _reserve(descriptor: int, size: int) -> None:
    """Blocks for the whole file now: a page that finds no space later ends the process (SIGBUS).

    Raises OSError on a full disk.
    """
    try:
        os.posix_fallocate(descriptor, 0, size)
    except (AttributeError, OSError) as error:
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
            raise
        # A platform or a file system that cannot.


def _keep_leftover(path: Path) -> None:
    if path.exists():
        number = 1
        while (kept := path.with_name(f"{path.name}.{number}")).exists():
            number += 1
        path.rename(kept)


def _slice(records: np.ndarray, begin: int, end: int) -> np.ndarray:
    capacity = len(records)
    if end <= begin:
        return records[:0].copy()
    start, stop = begin % capacity, end % capacity
    if start < stop or stop == 0:
        stop = stop or capacity
        return records[start:stop].copy()
    return np.concatenate([records[start:], records[:stop]])


def read_ring(path: str | Path) -> tuple[np.ndarray, int]:
    """What a killed process left in its ring file and no sink had taken.

    Returns (records of dtype RECORD in the order written, the rank). A record that reached the
    file in the very moment of the kill may be in both: compare before appending.
    Raises ValueError for a file that is not a ring, or is cut short.
    """
    data = Path(path).read_bytes()
    if len(data) < _HEADER_BYTES or data[:8] != _MAGIC:
        raise ValueError(f"{path} is not a ddpviz ring file: it does not begin with {_MAGIC!r}")
    _, version, rank, capacity, flushed = _HEADER.unpack_from(data)
    if version > VERSION:
        raise ValueError(f"{path} is a ring of version {version}, expected at most {VERSION}")
    if capacity == 0 or len(data) != _HEADER_BYTES + capacity * _SLOT_BYTES:
        raise ValueError(f"{path} holds {len(data)} bytes, not the {capacity} records it declares")
    slots = np.frombuffer(data, RECORD, capacity, _HEADER_BYTES)
    order = np.arange(flushed, flushed + capacity)
    slots = _slice(slots, flushed, flushed + capacity)
    return _records(slots[: whole(slots, order // capacity % 255 + 1)]), rank


def _records(slots: np.ndarray) -> np.ndarray:
    records = unpack(slots)
    return records[records["kind"] != 0] if (records["kind"] == 0).any() else records
