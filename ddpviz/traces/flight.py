"""Dumps of c10d's flight recorder: the last collectives of a rank, those that hang among them.

Its JSON (``_dump_fr_trace_json``), and its pickle, read by an unpickler that makes nothing but
plain containers, texts and numbers. Formats of version 2, torch 2.4 to 2.13.
"""

from __future__ import annotations

import dataclasses
import io
import math
import mmap
import pickle
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np

from ddpviz.events import (
    NO_GROUP,
    NO_MODULE,
    RECORD,
    Batch,
    Cause,
    Clock,
    Flag,
    Group,
    Kind,
    Label,
    Note,
    Process,
)
from ddpviz.recording import Recording
from ddpviz.traces.comms import DTYPES, elements_of, operation
from ddpviz.traces.errors import MOST_RANKS, TraceError

#: In which function DDP issued it, the innermost that is known.
_CAUSES = {
    "_verify_param_shape_across_processes": Cause.VERIFY,
    "_sync_module_states": Cause.INITIAL_STATE,
    "_sync_buffers": Cause.BUFFERS,
    "_find_common_rank": Cause.JOIN,
    "_check_global_requires_backward_grad_sync": Cause.JOIN,
    "notify_join_context": Cause.JOIN,
    "_pre_forward": Cause.REBUILD_ORDER,
    "_engine_run_backward": Cause.BUCKET,
}


#: No tensor has more; a damaged dump may say so.
_MOST_ELEMENTS = 2**40


@dataclasses.dataclass(frozen=True)
class Dump:
    """One rank's. ``entries``: unchecked, as the recorder wrote them."""

    path: Path
    entries: list[dict[str, Any]]
    groups: dict[str, tuple[int, ...]]


def from_pickle(path: Path, data: bytes | mmap.mmap) -> Dump:
    """Raises :class:`TraceError` for a pickle that is no dump, or would make anything else."""
    try:
        return _dump(path, _Plain(io.BytesIO(bytes(data))).load())
    except TraceError:
        raise
    except _Refused as refused:
        raise TraceError(
            f"found a pickle at {path} that would run {refused}, expected the flight recorder's "
            "plain dump: it was not opened"
        ) from None
    except Exception as error:  # a pickle can fail in any way
        raise TraceError(
            f"found a broken pickle at {path} ({type(error).__name__}), expected a dump of the "
            "flight recorder: copy it again"
        ) from None


def from_json(path: Path, data: bytes | mmap.mmap | memoryview) -> Dump | None:
    """None for JSON that is no dump."""
    try:
        found = msgspec.json.decode(data)
        return _dump(path, found) if isinstance(found, dict) and "entries" in found else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, MemoryError):
        return None


class _Refused(Exception):
    pass


class _Plain(pickle.Unpickler):
    """Makes no object of any class, and calls nothing."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise _Refused(f"{module}.{name}"[:80])

    def persistent_load(self, pid: Any) -> NoReturn:
        raise _Refused("a persistent id")


def _dump(path: Path, found: Any) -> Dump:
    entries = found.get("entries") if isinstance(found, dict) else None
    if not isinstance(entries, list):
        raise TraceError(f"found {path} without entries, expected a dump of the flight recorder")
    known = [one for one in entries if isinstance(one, dict) and _time(one, "time_created_ns")]
    if not known:
        raise TraceError(f"found no collective in the flight recorder's dump {path}")
    groups = {}
    configured = found.get("pg_config")
    for one in configured.values() if isinstance(configured, dict) else ():
        said = one.get("ranks") if isinstance(one, dict) else None
        digits = "".join(c if c in "0123456789" else " " for c in str(said)).split()
        members = tuple(int(digit) for digit in digits if len(digit) < 6)
        if members:
            groups[str(one.get("name", ""))] = members
    return Dump(path, known, groups)


def recording_of(dumps: list[tuple[int, Dump]]) -> Recording:
    """Collectives of these ranks. A recording of them has no steps."""
    recording = Recording()
    size = max(
        max((max(m) + 1 for _, d in dumps for m in d.groups.values()), default=0),
        max(rank for rank, _ in dumps) + 1,
    )
    if size > MOST_RANKS + 1:
        raise TraceError(
            f"found ranks up to {size - 1} in the dump {dumps[0][1].path}, expected at most "
            f"{MOST_RANKS}: check it"
        )
    for rank, dump in sorted(dumps, key=lambda one: one[0]):
        recording.append(_batch(rank, dump, size))
        for sentence in _stuck(rank, dump):
            recording.remark(sentence)
    recording.remark("a dump of the flight recorder has collectives only: no steps, no buckets")
    if not any(one.get("frames") for _, dump in dumps for one in dump.entries):
        recording.remark(
            "its JSON has no frames, so why a collective was issued is not known: the pickle has"
        )
    return recording


def _batch(rank: int, dump: Dump, size: int) -> Batch:
    names = list(dict.fromkeys(_group(one) for one in dump.entries))
    ids = {name: min(number, NO_GROUP - 1) for number, name in enumerate(names)}
    labels: dict[str, int] = {}
    rows = np.zeros(2 * len(dump.entries), RECORD)
    for field in ("bytes", "step", "iteration", "index"):
        rows[field] = -1
    rows["rank"], rows["module"] = rank, NO_MODULE
    count = 0
    for one in dump.entries:
        text, nbytes = _what(one)
        created_ns, ended_ns = _time(one, "time_created_ns"), _ended(one)
        for kind, end_ns in (
            (Kind.COLLECTIVE_LAUNCHED, created_ns),
            (Kind.COLLECTIVE_DONE, ended_ns),
        ):
            if not end_ns:
                continue
            row = rows[count]
            row["kind"], row["begin_ns"], row["end_ns"] = kind, created_ns, end_ns
            row["bytes"], row["label"] = nbytes, labels.setdefault(text, len(labels) + 1)
            row["cause"], row["group"] = _cause(one), ids[_group(one)]
            row["sequence"] = _number(one.get("collective_seq_id"))
            row["clock"] = Clock.HOST
            if kind == Kind.COLLECTIVE_DONE and not _time(one, "time_discovered_completed_ns"):
                row["flags"] = Flag.ENQUEUED
            count += 1
    backend = str(dump.entries[0].get("profiling_name", "")).partition(":")[0] or "unknown"
    everyone = tuple(range(size))
    notes: tuple[Note, ...] = (
        Process(
            rank,
            size,
            0,
            "",
            "",
            "",
            "cuda" if backend == "nccl" else "cpu",
            int(rows["begin_ns"][:count].min()),
            "trace",
        ),
        *(
            Group(ids[name], name or "default", backend, dump.groups.get(name) or everyone)
            for name in names
        ),
        *(Label(number, text) for text, number in labels.items()),
    )
    return Batch(rank, 0, rows[:count], notes)


def _stuck(rank: int, dump: Dump) -> list[str]:
    waiting = [one for one in dump.entries if not one.get("retired") and not _completed(one)]
    if not waiting:
        return []
    first = waiting[0]
    frames = first.get("frames")
    of_dicts = (f for f in (frames if isinstance(frames, list) else ()) if isinstance(f, dict))
    frame = next(of_dicts, None)
    where = f", launched at {frame.get('filename')}:{frame.get('line')}" if frame else ""
    return [
        f"rank {rank} had launched {len(waiting)} collectives that were not known to be over: the "
        f"first is {_what(first)[0]}, number {first.get('collective_seq_id')} of its group{where}"
    ]


def _completed(one: dict[str, Any]) -> bool:
    return one.get("state") == "completed" or _time(one, "time_discovered_completed_ns") > 0


def _ended(one: dict[str, Any]) -> int:
    """When it was seen to be over; where only that it is known, its launch."""
    known = _time(one, "time_discovered_completed_ns")
    if known:
        return known
    return _time(one, "time_created_ns") if one.get("retired") or _completed(one) else 0


def _what(one: dict[str, Any]) -> tuple[str, int]:
    """Operation and dtype, and bytes."""
    dtypes = one.get("input_dtypes")
    said = dtypes[0] if isinstance(dtypes, list) and dtypes else ""
    dtype, size = DTYPES.get(str(said).lower(), ("", 0))
    elements = elements_of(one.get("input_sizes"))
    name = operation(str(one.get("profiling_name"))) or "collective"
    return f"{name} {dtype}".strip(), min(max(elements, 0), _MOST_ELEMENTS) * size


def _cause(one: dict[str, Any]) -> Cause:
    frames = one.get("frames")
    for frame in frames if isinstance(frames, list) else ():
        name = str(frame.get("name")) if isinstance(frame, dict) else ""
        if name in _CAUSES:
            found = _CAUSES[name]
            integers = _what(one)[0].endswith("int32")
            return Cause.USED_MAP if found == Cause.BUCKET and integers else found
    return Cause.UNKNOWN


def _group(one: dict[str, Any]) -> str:
    said = one.get("process_group")
    return str(said[0]) if isinstance(said, (list, tuple)) and said else ""


def _time(one: dict[str, Any], field: str) -> int:
    value = one.get(field)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return 0
    return int(value) if 0 < value < 2**62 else 0


def _number(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value < 2**31 else -1
