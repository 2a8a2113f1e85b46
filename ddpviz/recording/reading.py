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
    Note,
    Process,
    Unavailable,
    note_from_json,
)
from ddpviz.probe.ring import read_ring
from ddpviz.recording import files
from ddpviz.recording.attachments import UNNUMBERED, attachment_key, rows_as_bytes


@dataclasses.dataclass(frozen=True)
class Part:
    """One batch as the Arrow file has it. ``end``: where it ends in the file, in bytes."""

    attachment: int
    sequence: int
    records: np.ndarray
    end: int


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
    notes = _read_notes(files.notes_path(directory, rank), remarks)
    _check_rank(directory, rank, notes)
    missing = not files.arrow_path(directory, rank).exists()
    for path, what in (
        (files.notes_path(directory, rank), "names, plans and configurations"),
        (files.arrow_path(directory, rank), "its records, but for what a ring has,"),
    ):
        if not path.exists():
            remarks.append(f"{path.name} is not there: {what} of rank {rank} are missing")
    missing |= _emptied(files.arrow_path(directory, rank), notes, rank, remarks)
    keys = _keys(notes)
    rings, _ = _read_rings(directory, rank, keys, remarks)

    def read(attachment: int, sequence: int, records: np.ndarray) -> Read:
        found = tuple(notes.pop((attachment, sequence), ()))
        return Read(Batch(rank, sequence, records, found), keys.get(attachment, attachment))

    def left_behind(before: int) -> Iterator[Read]:
        # Notes whose records are not in the file (yet): a cut, or a batch being written. Outside
        # the numbering, so that the batch itself is still taken when it is there later.
        for place in sorted(place for place in notes if place[0] < before):
            found = read(*place, np.empty(0, RECORD))
            yield Read(dataclasses.replace(found.batch, sequence=UNNUMBERED), found.source)
        for attachment in sorted(attachment for attachment in rings if attachment < before):
            yield read(attachment, UNNUMBERED, rings.pop(attachment))

    last = 0
    cut: list[str] = []
    for part in read_parts(files.arrow_path(directory, rank), cut):
        if part.attachment > last:
            last = part.attachment
            yield from left_behind(last)
        others = part.records["rank"][part.records["rank"] != rank]
        if len(others):
            raise _misplaced(files.arrow_path(directory, rank), rank, int(others[0]))
        yield read(part.attachment, part.sequence, part.records)
    yield from left_behind(max(last, *(place[0] for place in notes), *rings, 0) + 1)
    remarks += cut
    if missing or cut:
        why = "its file of records is cut or not there"
        note = Unavailable(NO_MODULE, "records", 0, why)
        batch = Batch(rank, UNNUMBERED, np.empty(0, RECORD), (note,))
        yield Read(batch, keys.get(last, last))


def _emptied(
    path: Path, notes: dict[tuple[int, int], list[Note]], rank: int, remarks: list[str]
) -> bool:
    """Whether a file has lost all: one that a rank has ended has at least how it is laid out."""
    ended = any(isinstance(note, Ended) for found in notes.values() for note in found)
    if not ended or not path.exists() or path.stat().st_size:
        return False
    remarks.append(
        f"{path.name} is empty: its records, but for what a ring has, of rank {rank} are missing"
    )
    return True


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
                except StopIteration:
                    break
                except (pa.ArrowException, OSError, KeyError, TypeError):
                    break
                if attachment < 0 or sequence < UNNUMBERED:
                    break
                end = source.tell()
                yield Part(attachment, sequence, files.from_arrow(batch), end)
    cut = path.stat().st_size - end
    if cut > 0:
        remarks.append(f"{path.name} ends within a batch: its last {cut} bytes are left out")


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
    notes = _read_notes(files.notes_path(directory, rank), [])
    rings, ring_files = _read_rings(directory, rank, _keys(notes), [])
    begin_ns = min((int(records["begin_ns"].min()) for records in rings.values()), default=0)
    size_bytes, attachments, here = 0, 0, set[bytes]()
    for part in read_parts(files.arrow_path(directory, rank), []):
        size_bytes, attachments = part.end, max(attachments, part.attachment + 1)
        if rings and len(part.records) and part.records["begin_ns"].max() >= begin_ns:
            here.update(rows_as_bytes(part.records))
    attachments = max(attachments, *(place[0] + 1 for place in notes), *(a + 1 for a in rings), 0)
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


def _keys(notes: dict[tuple[int, int], list[Note]]) -> dict[int, tuple[str, int, int]]:
    """The key of every attachment whose Process note is there."""
    keys: dict[int, tuple[str, int, int]] = {}
    for (attachment, _), found in notes.items():
        key = attachment_key(found)
        if key is not None:
            keys[attachment] = key
    return keys


def _read_notes(path: Path, remarks: list[str]) -> dict[tuple[int, int], list[Note]]:
    """Notes by (attachment, sequence) of the batch that brought them, in the order written."""
    notes: dict[tuple[int, int], list[Note]] = {}
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            data = json.loads(line)
            # Until it had a name of its own, it stood among the note's fields.
            attachment, sequence = data.get("batch") or (data["attachment"], data["sequence"])
            place = attachment, sequence
            if not all(type(one) is int and UNNUMBERED <= one < 2**31 for one in place):
                raise ValueError(f"found {place!r} as attachment and sequence")
            notes.setdefault(place, []).append(note_from_json(data))
        except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
            remarks.append(f"left out line {number} of {path.name}: {error}")
    return notes


def _check_rank(directory: Path, rank: int, notes: dict[tuple[int, int], list[Note]]) -> None:
    """Raises ValueError where a rank's notes are another one's: files were renamed, or mixed."""
    for found in notes.values():
        for note in found:
            if isinstance(note, Process) and note.rank != rank:
                raise _misplaced(files.notes_path(directory, rank), rank, note.rank)


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
