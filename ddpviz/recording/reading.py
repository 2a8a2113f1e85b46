"""Reads a recording's directory: whole batches only, whatever the files' tails look like."""

from __future__ import annotations

import dataclasses
import heapq
import json
from collections.abc import Hashable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from ddpviz.events import (
    NO_MODULE,
    RECORD,
    VERSION,
    Batch,
    Ended,
    Process,
    Unavailable,
)
from ddpviz.probe.ring import read_ring
from ddpviz.recording import files
from ddpviz.recording.attachments import UNNUMBERED, rows_as_bytes
from ddpviz.recording.rank_notes import Place, RankNotes


@dataclasses.dataclass(frozen=True)
class Part:
    """One batch as the Arrow file has it. ``end``: where it ends in the file, in bytes; ``notes``:
    how many it brought; ``records``: None where they are damaged."""

    attachment: int
    sequence: int
    records: np.ndarray | None
    end: int
    notes: int = 0


@dataclasses.dataclass(frozen=True)
class Read:
    """A batch from disk. ``source``: its attachment's key, or ordinal where the notes lack it."""

    batch: Batch
    source: Hashable | int


def check(directory: Path) -> int:
    """Says in one sentence what is wrong with a directory that is no recording.

    Returns how many records were left out when it was saved. Raises FileNotFoundError,
    NotADirectoryError or ValueError.
    """
    expected = f"expected a directory that ddpviz recorded into, with {files.DESCRIPTION} in it"
    if not directory.exists():
        raise FileNotFoundError(f"found nothing at {directory}, {expected}: check the path")
    if not directory.is_dir():
        raise NotADirectoryError(f"found a file at {directory}, {expected}: give its directory")
    try:
        description = json.loads((directory / files.DESCRIPTION).read_bytes())
    except FileNotFoundError:
        if files.ranks_in(directory):
            return 0  # a rank's files tell their version themselves
        what = "other files" if any(directory.iterdir()) else "an empty directory"
        raise ValueError(f"found {what} at {directory}, {expected}: check the path") from None
    except (ValueError, RecursionError):
        description = None
    if not isinstance(description, dict) or description.get("format") != files.FORMAT:
        raise ValueError(
            f"found a {files.DESCRIPTION} at {directory} that is not ddpviz's, {expected}"
        )
    version, dropped = (_whole(description.get(name, 0)) for name in ("version", "dropped"))
    if version is None or dropped is None:
        raise ValueError(
            f"found a damaged {files.DESCRIPTION} at {directory}: its version and dropped are "
            "expected to be whole numbers"
        )
    if version > VERSION:
        raise ValueError(
            f"found a recording of version {version} at {directory}, "
            f"expected at most {VERSION}: update ddpviz"
        )
    return dropped


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and 0 <= value < 2**63 else None


def read_directory(directory: Path, remarks: list[str]) -> Iterator[Read]:
    """All batches of all ranks, in the order of their times; one batch per rank in memory.

    ``remarks`` receives a sentence for everything that had to be left out.
    Raises ValueError for a rank file that is not ddpviz's.
    """
    ranks = [_timed(directory, rank, remarks) for rank in files.ranks_in(directory)]
    return (read for _, _, _, read in heapq.merge(*ranks, key=lambda item: item[:3]))


def _timed(directory: Path, rank: int, remarks: list[str]) -> Iterator[tuple[int, int, int, Read]]:
    time_ns = 0
    for number, read in enumerate(_read_rank(directory, rank, remarks)):
        if len(read.batch.records):
            time_ns = max(time_ns, int(read.batch.records["begin_ns"].max()))
        # A new attachment begins with its notes alone: it must not come before what the other
        # ranks still recorded in their attachments before it, or steps are numbered otherwise.
        started = [note.started_ns for note in read.batch.notes if isinstance(note, Process)]
        time_ns = max(time_ns, *started, 0)
        yield time_ns, rank, number, read


def _read_rank(directory: Path, rank: int, remarks: list[str]) -> Iterator[Read]:
    path = files.arrow_path(directory, rank)
    notes = RankNotes(files.notes_path(directory, rank))
    _check_rank(rank, notes)
    ended = any(isinstance(note, Ended) for note in notes.each())
    missing = not path.exists()
    for file, what in (
        (notes.path, "names, plans and configurations"),
        (path, "its records, but for what a ring has,"),
    ):
        if not file.exists():
            remarks.append(f"{file.name} is not there: {what} of rank {rank} are missing")
    rings, _ = _read_rings(directory, rank, notes.keys, remarks)

    def read(attachment: int, sequence: int, records: np.ndarray, expected: int = 0) -> Read:
        found = notes.take((attachment, sequence), expected)
        return Read(Batch(rank, sequence, records, found), notes.keys.get(attachment, attachment))

    def left_behind(before: int) -> Iterator[Read]:
        # Notes whose records are not in the file (yet): a cut, or a batch being written. Outside
        # the numbering, so that the batch itself is still taken when it is there later.
        for place in notes.left(before):
            found = read(*place, np.empty(0, RECORD))
            yield Read(dataclasses.replace(found.batch, sequence=UNNUMBERED), found.source)
        for attachment in sorted(attachment for attachment in rings if attachment < before):
            yield read(attachment, UNNUMBERED, rings.pop(attachment))

    last = 0
    cut: list[str] = []
    lacking: set[Place] = set()
    for part in read_parts(path, cut):
        if part.records is None:
            continue
        if part.attachment > last:
            lacking |= _without_records(notes, part.attachment)
            last = part.attachment
            yield from left_behind(last)
        others = part.records["rank"][part.records["rank"] != rank]
        if len(others):
            raise _misplaced(path, rank, int(others[0]))
        yield read(part.attachment, part.sequence, part.records, part.notes)
    notes.settle()
    final = max(last, notes.last, *rings, 0) + 1
    lacking |= _without_records(notes, final)
    yield from left_behind(final)
    if not missing and not cut and (lacking or (ended and not path.stat().st_size)):
        here = f"has no records of {_batches(len(lacking))} whose notes are here: it was cut, and"
        here = here if path.stat().st_size else "is empty:"
        cut.append(
            f"{path.name} {here} its records, but for what a ring has, of rank {rank} are missing"
        )
    remarks += cut + notes.remarks
    for what, why in (
        ("records", "its file of records is cut or not there" if missing or cut else ""),
        ("notes", "" if notes.complete else "its file of notes is cut, damaged or not there"),
    ):
        if why:
            note = Unavailable(NO_MODULE, what, 0, why)
            batch = Batch(rank, UNNUMBERED, np.empty(0, RECORD), (note,))
            yield Read(batch, notes.keys.get(last, last))


def _without_records(notes: RankNotes, before: int) -> set[Place]:
    """Batches that have notes and no records, though they were written: notes of a later one of
    the same attachment are here, or the rank ended with it. The last one may be being written, or
    a crash came between its notes and its records."""
    return {
        (attachment, sequence)
        for attachment, sequence in notes.left(before)
        if 0 <= sequence < notes.newest(attachment)
        or any(isinstance(note, Ended) for note in notes.of((attachment, sequence)))
    }


def _batches(number: int) -> str:
    return "a batch" if number == 1 else f"{number} batches"


def read_parts(path: Path, remarks: list[str]) -> Iterator[Part]:
    """Whole batches of one Arrow file, up to where it was cut. Raises ValueError if foreign."""
    if not path.exists() or path.stat().st_size == 0:
        return
    end = 0
    with pa.OSFile(str(path)) as source:
        try:
            stream = pa.ipc.open_stream(source)
        except (pa.ArrowException, OSError) as error:
            if path.read_bytes()[:4] != b"\xff\xff\xff\xff"[: path.stat().st_size]:
                raise _foreign(path) from error
            stream = None
        if stream is not None:
            _check_schema(path, stream.schema)
            end = source.tell()
            while True:
                try:
                    batch, metadata = stream.read_next_batch_with_custom_metadata()
                    place = dict(metadata)
                    attachment, sequence = int(place[b"attachment"]), int(place[b"sequence"])
                    brought = int(place.get(b"notes", 0))
                    checksum = int(place.get(b"crc32", -1))
                except StopIteration:
                    break
                except (pa.ArrowException, OSError, KeyError, TypeError, ValueError):
                    break
                if attachment < 0 or sequence < UNNUMBERED:
                    break
                end = source.tell()
                records = _whole_records(batch, checksum, attachment, sequence, brought)
                if records is None:
                    remarks.append(
                        f"{path.name} is damaged: the {batch.num_rows} records of its batch "
                        f"{sequence} are left out"
                    )
                yield Part(attachment, sequence, records, end, brought)
    cut = path.stat().st_size - end
    if cut > 0:
        remarks.append(f"{path.name} ends within a batch: its last {cut} bytes are left out")


def _whole_records(
    batch: pa.RecordBatch, checksum: int, attachment: int, sequence: int, notes: int
) -> np.ndarray | None:
    """A batch's records; None where they are not those that were written. ``checksum``: -1 where
    it was written without one."""
    try:
        records = files.from_arrow(batch)
        if checksum != -1 and checksum != files.checksum(batch, attachment, sequence, notes):
            return None
    except (pa.ArrowException, ValueError):
        return None
    return records


@dataclasses.dataclass(frozen=True)
class Whole:
    """What a writer that continues a rank's files finds: the bytes of whole batches, how many
    attachments there are, the records by attachment that only its rings have, and these rings."""

    size_bytes: int
    attachments: int
    rings: dict[int, np.ndarray]
    ring_files: list[Path]


def whole_part(directory: Path, rank: int) -> Whole:
    """Reads a rank's files for a writer. Raises ValueError if they are foreign."""
    notes = RankNotes(files.notes_path(directory, rank))
    rings, ring_files = _read_rings(directory, rank, notes.keys, [])
    begin_ns = min((int(records["begin_ns"].min()) for records in rings.values()), default=0)
    size_bytes, attachments, here = 0, 0, set[bytes]()
    for part in read_parts(files.arrow_path(directory, rank), []):
        size_bytes, attachments = part.end, max(attachments, part.attachment + 1)
        if part.records is None:
            continue
        if rings and len(part.records) and part.records["begin_ns"].max() >= begin_ns:
            here.update(rows_as_bytes(part.records))
    attachments = max(attachments, notes.last + 1, *(a + 1 for a in rings), 0)
    only = {}
    for attachment, records in rings.items():
        new = np.array([row not in here for row in rows_as_bytes(records)], bool)
        if new.any():
            only[attachment] = records[new]
    return Whole(size_bytes, attachments, only, ring_files)


def _read_rings(
    directory: Path, rank: int, keys: dict[int, tuple[str, int, int]], remarks: list[str]
) -> tuple[dict[int, np.ndarray], list[Path]]:
    """What a rank's rings still hold, by the attachment that was running at the time, and which
    files could be read."""
    rings: dict[int, np.ndarray] = {}
    readable = []
    for path in files.ring_paths(directory, rank):
        try:
            records, of = read_ring(path)
            if of != rank:
                raise _misplaced(path, rank, of)
        except (OSError, ValueError) as error:
            remarks.append(f"left out {path.name}: {error}")
            continue
        readable.append(path)
        if len(records):
            last_ns = int(records["begin_ns"].max())
            running = [attachment for attachment, key in keys.items() if key[2] <= last_ns]
            attachment = max(running, default=min(keys, default=0))
            earlier = rings.get(attachment, np.empty(0, RECORD))
            rings[attachment] = np.concatenate([earlier, records])
    return rings, readable


def _check_rank(rank: int, notes: RankNotes) -> None:
    """Raises ValueError where a rank's notes are another one's: files were renamed, or mixed."""
    for note in notes.each():
        if isinstance(note, Process) and note.rank != rank:
            raise _misplaced(notes.path, rank, note.rank)


def _misplaced(path: Path, rank: int, found: int) -> ValueError:
    return ValueError(
        f"found rank {found} in {path.name}, expected rank {rank}: give each rank's files their "
        "own names back"
    )


def _check_schema(path: Path, schema: pa.Schema) -> None:
    version = (schema.metadata or {}).get(files.VERSION_KEY)
    if version is None or not version.isdigit():
        raise _foreign(path)
    strange = [
        name
        for name in files.FIELDS
        if name in schema.names and schema.field(name).type != files.SCHEMA.field(name).type
    ]
    if strange:
        raise _foreign(path)
    if int(version) > VERSION:
        raise ValueError(
            f"found records of version {int(version)} in {path}, "
            f"expected at most {VERSION}: update ddpviz"
        )


def _foreign(path: Path) -> ValueError:
    return ValueError(
        f"found {path}, which is not an Arrow stream that ddpviz wrote: "
        "remove it, or give another directory"
    )
