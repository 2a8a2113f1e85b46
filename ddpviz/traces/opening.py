"""The bytes of a file that may be a trace: unpacked, and anything else named and refused."""

from __future__ import annotations

import mmap
import re
import stat
from pathlib import Path

import psutil
import pyarrow as pa

from ddpviz.recording.files import DESCRIPTION, ranks_in
from ddpviz.traces.errors import TraceError

#: Endings of files that a directory is searched for.
ENDINGS = (".json", ".json.gz", ".json.zst", ".json.zstd", ".pickle", ".pkl")

_EXPECTED = "expected a profiler trace (Chrome or Kineto JSON, plain, .gz or .zst)"
_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
#: First bytes of what is not read, what that is, and what to do about it.
_FOREIGN = (
    (b"SQLite format 3\0", "an SQLite database, as nsys exports it", "it is not read yet"),
    (b"PK\x03\x04", "a zip archive", "unpack it"),
    (b"BZh", "a bzip2 file", "unpack it"),
    (b"\xfd7zXZ\0", "an xz file", "unpack it"),
    (b"\x04\x22\x4d\x18", "an lz4 file", "unpack it"),
    (b"PAR1", "a Parquet file", "it is not read"),
    (b"ARROW1", "an Arrow file", "it is not read"),
    (b"\x7fELF", "a program", "give another file"),
    (b"\x89PNG", "a picture", "give another file"),
    (b"\x80", "a pickle", "only the flight recorder's is read"),
    (b"<", "HTML or XML", "export the trace as JSON"),
    (b"\x0a", "binary data, as Perfetto's own protobuf has it", "export the trace as JSON"),
)
_BLOCK = 1 << 24


def may_be_trace(path: Path) -> bool:
    """By its name: an ending of :data:`ENDINGS`, or NCCL's name of a flight recorder's dump."""
    name = path.name.lower()
    return name.endswith(ENDINGS) or re.fullmatch(r".*trace_rank_\d+", name) is not None


def is_trace(path: Path) -> bool:
    """A file, or a directory with files that may be traces and no recording in it."""
    if not path.is_dir():
        return path.name != DESCRIPTION and (path.exists() or may_be_trace(path))
    if (path / DESCRIPTION).exists() or ranks_in(path):
        return False
    return any(may_be_trace(entry) for entry in path.iterdir())


def contents(path: Path) -> bytes | mmap.mmap:
    """The file's bytes, unpacked: JSON, or a pickle.

    Raises :class:`TraceError` for a file that is missing, empty, cut, too large for this machine
    once unpacked, or of a format that is not read.
    """
    try:
        about = path.stat()
        size = about.st_size
        if not stat.S_ISREG(about.st_mode) and not stat.S_ISDIR(about.st_mode):
            raise TraceError(f"found a pipe or a device at {path}, {_EXPECTED}, as a file")
        with path.open("rb") as file:
            head = file.read(64)
            if not size or not head:
                raise TraceError(f"found an empty file at {path}, {_EXPECTED}: record it again")
            packing = next((how for magic, how in _PACKED.items() if head.startswith(magic)), None)
            if packing is None:
                _check(path, head)
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise TraceError(
            f"found nothing at {path}, {_EXPECTED}, or a recording's folder: check the path"
        ) from None
    except IsADirectoryError:
        raise TraceError(f"found a directory at {path}, {_EXPECTED}") from None
    except (OSError, ValueError) as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(f"cannot read {path}: {getattr(error, 'strerror', error)}") from None
    data = _unpacked(path, packing)
    if any(data.startswith(magic) for magic in _PACKED):
        raise TraceError(f"found {path} packed twice, {_EXPECTED}: unpack it once")
    if not data:
        raise TraceError(f"found nothing inside {path}, {_EXPECTED}: record it again")
    _check(path, data[:64])
    return data


def _unpacked(path: Path, packing: str) -> bytes:
    most = max(psutil.virtual_memory().available // 3, 1 << 28)
    parts, size = [], 0
    try:
        with pa.OSFile(str(path)) as file, pa.CompressedInputStream(file, packing) as stream:
            while block := stream.read(_BLOCK):
                parts.append(block)
                size += len(block)
                if size > most:
                    raise TraceError(
                        f"found more than {most / 1e9:.1f} GB inside {path}, which is a third of "
                        "this machine's free memory: read it on a larger machine, or trace fewer "
                        "steps"
                    )
    except (OSError, pa.ArrowException) as error:
        said = str(error).splitlines()[0]
        raise TraceError(
            f"found {path} cut or damaged, its {packing} data cannot be unpacked ({said}): "
            "copy it again, or wait until the profiler has written it"
        ) from None
    return b"".join(parts)


def is_pickle(data: bytes | mmap.mmap) -> bool:
    """Whether these bytes begin as a pickle of protocol 2 or later does."""
    return data[:1] == b"\x80" and data[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")


def without_mark(data: bytes | mmap.mmap) -> bytes | mmap.mmap | memoryview:
    """Without UTF-8's byte order mark, which some editors write and JSON doesn't know."""
    return memoryview(data)[3:] if data[:3] == b"\xef\xbb\xbf" else data


def _check(path: Path, head: bytes) -> None:
    """Raises unless these are the first bytes of JSON or of a pickle."""
    if is_pickle(head) or head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"["):
        return
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise TraceError(f"found text in UTF-16 in {path}, expected UTF-8: convert it")
    for magic, what, advice in _FOREIGN:
        if head.startswith(magic) and (head[:1] != b"\x0a" or not head.strip().isascii()):
            raise TraceError(f"found {what} at {path}, {_EXPECTED}: {advice}")
    if path.suffix in (".nsys-rep", ".qdrep", ".ncu-rep"):
        raise TraceError(f"found an Nsight report at {path}, {_EXPECTED}: it is not read")
    if path.name.endswith((".csv", ".csv.gz", ".tsv")):
        raise TraceError(
            f"found a table at {path}, as other analyses write it, {_EXPECTED}: "
            "give the trace that it was made from"
        )
    if not head.strip(b"\0 \t\r\n"):
        raise TraceError(f"found only blanks or zeros in {path}, {_EXPECTED}: record it again")
    raise TraceError(f"found neither JSON nor a pickle at {path}, {_EXPECTED}: check the file")
