"""A trace as numpy columns: what an analysis needs of millions of events, 24 bytes each."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ddpviz.traces.decoding import Args, Decoded, Event, arguments
from ddpviz.traces.errors import TraceError


class Category(enum.IntEnum):
    """What sort of event it is, however the profiler's version calls that."""

    OTHER = 0
    OPERATION = 1
    ANNOTATION = 2
    PYTHON = 3
    RUNTIME = 4
    KERNEL = 5
    COPY = 6
    GPU_ANNOTATION = 7


_CATEGORIES = {
    "cpu_op": Category.OPERATION,
    "operator": Category.OPERATION,
    "user_annotation": Category.ANNOTATION,
    "python_function": Category.PYTHON,
    "cuda_runtime": Category.RUNTIME,
    "cuda_driver": Category.RUNTIME,
    "runtime": Category.RUNTIME,
    "kernel": Category.KERNEL,
    "gpu_memcpy": Category.COPY,
    "memcpy": Category.COPY,
    "gpu_memset": Category.COPY,
    "memset": Category.COPY,
    "gpu_user_annotation": Category.GPU_ANNOTATION,
}
#: Events whose arguments are read, by the beginning of their names.
ASKED = (
    "c10d::",
    "_c10d_functional::",
    "gloo:",
    "nccl",
    "rccl",
    "record_param_comms",
    "torch::distributed::reducer::",
    "torch.distributed.ddp.reducer::copy_bucket_to_grad",
)
#: An event is at most so many times as long as all begins are apart, and so much more.
_MOST_EXTENTS, _LONGEST_NS = 10, 60e9
#: Times beyond this (in ns, some 290 years) are none.
_LATEST_NS = 2.0**63


@dataclasses.dataclass(frozen=True)
class Trace:
    """Complete events of one file, in the order of their begins, the longer of two first.

    ``begin_ns``, ``end_ns``: int64; since the epoch where the file tells its base, else since
    what its profiler counts from. ``name``, ``thread``: positions in ``names``, ``threads``;
    ``category``: a :class:`Category`. ``correlation``: joins a kernel with the call that launched
    it, -1 for none. ``details``: arguments of the events of :data:`ASKED`, by position.
    ``left_out``: events that could not be read.
    """

    path: Path
    begin_ns: np.ndarray
    end_ns: np.ndarray
    name: np.ndarray
    category: np.ndarray
    thread: np.ndarray
    correlation: np.ndarray
    names: list[str]
    threads: list[tuple[Any, Any]]
    details: dict[int, Args]
    distributed: dict[str, Any]
    host: str
    has_epoch: bool
    left_out: int

    def __len__(self) -> int:
        return len(self.begin_ns)

    def named(self, wanted: Callable[[str], bool], *categories: Category) -> np.ndarray:
        """Positions of events whose name is wanted, of these categories or of any."""
        table = np.fromiter((wanted(name) for name in self.names), bool, len(self.names))
        found = table[self.name]
        if categories:
            found &= np.isin(self.category, categories)
        positions: np.ndarray = np.flatnonzero(found)
        return positions

    def text(self, position: int) -> str:
        """An event's name."""
        return self.names[int(self.name[position])]


def outermost(trace: Trace, positions: np.ndarray) -> np.ndarray:
    """Positions, in the order of begins, without those inside another of them on their thread."""
    kept: list[int] = []
    until: dict[int, int] = {}
    for at in positions.tolist():
        thread = int(trace.thread[at])
        if trace.begin_ns[at] >= until.get(thread, -(2**62)):
            kept.append(at)
            until[thread] = int(trace.end_ns[at])
    return np.array(kept, np.int64)


@dataclasses.dataclass(frozen=True)
class _Part:
    """Columns of a block of events, as they came. ``whole_us``: where all begins are whole."""

    begin_us: np.ndarray
    whole_us: np.ndarray | None
    length_us: np.ndarray
    name: np.ndarray
    thread: np.ndarray
    category: np.ndarray
    correlation: np.ndarray
    details: dict[int, Args]


class _Pairs:
    """Begins and ends that are events of their own, each with its other; per thread they nest."""

    def __init__(self) -> None:
        self._open: dict[tuple[Any, Any], list[Event]] = {}
        self._odd = 0

    def complete(self, block: list[Event]) -> list[Event]:
        """The complete events of a block, in their order; a pair stands where it ended."""
        found = []
        for event in block:
            if event.ph == "X":
                found.append(event)
            elif event.ph == "B":
                self._open.setdefault(_where(event), []).append(event)
            elif event.ph == "E":
                begun = self._open.get(_where(event))
                if begun:
                    begin = begun.pop()
                    begin.ph, begin.dur = "X", _number(event.ts) - _number(begin.ts)
                    found.append(begin)
                else:
                    self._odd += 1
        return found

    @property
    def left_out(self) -> int:
        """Those without their other, so far."""
        return self._odd + sum(map(len, self._open.values()))


class _Codes:
    """Names, threads and categories, numbered as they come."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.threads: dict[tuple[Any, Any], int] = {}
        self.categories: dict[str, int] = {}

    def part(self, events: list[Event]) -> _Part:
        """Of the complete events of a block."""
        begin_us, whole = _times([event.ts for event in events])
        length_us, _ = _times([event.dur for event in events])
        names, threads, categories = self.names, self.threads, self.categories
        sort = [categories.setdefault(event.cat, len(categories)) for event in events]
        kinds = [_CATEGORIES.get(cat.lower(), Category.OTHER) for cat in categories]
        category = np.array(kinds, np.int8)[np.array(sort, np.int32)]
        details, correlation = _arguments(events, category)
        return _Part(
            begin_us,
            whole,
            length_us,
            np.array([names.setdefault(event.name, len(names)) for event in events], np.int32),
            np.array([threads.setdefault(_where(one), len(threads)) for one in events], np.int32),
            category,
            correlation,
            details,
        )


def columns(path: Path, decoded: Decoded, distributed: dict[str, Any]) -> Trace:
    """Raises :class:`TraceError` where there is no event with a time and a length."""
    codes, pairs, parts, left_out = _Codes(), _Pairs(), [], decoded.left_out
    for block, bad in decoded.blocks():
        parts.append(codes.part(pairs.complete(block)))
        left_out += bad
    left_out += pairs.left_out
    parts = parts or [codes.part([])]
    begin_us = np.concatenate([part.begin_us for part in parts])
    length_us = np.concatenate([part.length_us for part in parts])
    wholes = [part.whole_us for part in parts if part.whole_us is not None]
    whole = np.concatenate(wholes) if len(wholes) == len(parts) else None
    unit = _unit(begin_us, whole)
    base_ns = _whole(decoded.base_ns)
    good = ~np.isnan(begin_us) & (np.abs(begin_us) * unit + base_ns < _LATEST_NS)
    good &= _possible(begin_us, length_us, unit)  # one whose length cannot be read has none
    if not good.any():
        raise TraceError(
            f"found no event with a time in {path}, expected a profiler trace of some steps: "
            "record it again"
        )
    begin_ns = np.zeros(len(good), np.int64)
    if whole is not None:
        begin_ns[good] = whole[good] * np.int64(unit)
    else:
        # In two parts: a product of 16 digits and 1000 has more than a float64 holds.
        floor = np.floor(begin_us[good])
        fraction_ns = np.rint((begin_us[good] - floor) * unit).astype(np.int64)
        begin_ns[good] = floor.astype(np.int64) * unit + fraction_ns
    begin_ns += base_ns
    length_ns = np.zeros(len(good), np.int64)
    length_ns[good] = np.rint(length_us[good] * unit).astype(np.int64)

    kept = np.flatnonzero(good)
    order = kept[np.lexsort((-length_ns[kept], begin_ns[kept]))]
    return Trace(
        path=path,
        begin_ns=begin_ns[order],
        end_ns=(begin_ns + length_ns)[order],
        name=np.concatenate([part.name for part in parts])[order],
        category=np.concatenate([part.category for part in parts])[order],
        thread=np.concatenate([part.thread for part in parts])[order],
        correlation=np.concatenate([part.correlation for part in parts])[order],
        names=list(codes.names),
        threads=list(codes.threads),
        details=_moved(parts, order),
        distributed=distributed,
        host=decoded.host if isinstance(decoded.host, str) else "",
        has_epoch=base_ns > 0 or float(np.median(begin_ns[kept])) > 1e18,
        left_out=left_out + len(good) - len(order),
    )


def _possible(begin_us: np.ndarray, length_us: np.ndarray, unit: int) -> np.ndarray:
    """Lengths that an event can have beside the others: not negative, and not many times longer
    than the trace."""
    known = begin_us[~np.isnan(begin_us)]
    extent_us = float(known.max() - known.min()) if len(known) else 0.0
    longest_us = min(_MOST_EXTENTS * extent_us + _LONGEST_NS / unit, _LATEST_NS / 4 / unit)
    possible: np.ndarray = (length_us >= 0) & (length_us <= longest_us)
    return possible


def _moved(parts: list[_Part], order: np.ndarray) -> dict[int, Args]:
    """The parts' details by where their events have come to stand, in that order."""
    at = np.full(sum(len(part.name) for part in parts), -1, np.int64)
    at[order] = np.arange(len(order))
    found, before = {}, 0
    for part in parts:
        for position, details in part.details.items():
            found[int(at[before + position])] = details
        before += len(part.name)
    found.pop(-1, None)
    return dict(sorted(found.items()))


def _times(values: list[Any]) -> tuple[np.ndarray, np.ndarray | None]:
    """As float64, NaN for what is no number; as int64 too where all are whole."""
    if all(type(value) is int and abs(value) < 2**62 for value in values):
        whole = np.array(values, np.int64)
        return whole.astype(np.float64), whole
    try:
        found = np.array(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        found = np.empty(0)
    if found.shape != (len(values),):  # lists among them, or what is no number
        found = np.array([_number(value) for value in values], np.float64).reshape(-1)
    return np.where(np.isfinite(found), found, np.nan), None


def _number(value: Any) -> float:
    try:
        return float(value) if isinstance(value, (int, float, str)) else math.nan
    except (ValueError, OverflowError):
        return math.nan


def _unit(begin_us: np.ndarray, whole: np.ndarray | None) -> int:
    """ns per unit: Chrome's JSON counts µs, but a µs since 1970 has 16 digits and a ns 19."""
    known = begin_us[~np.isnan(begin_us)]
    return 1 if whole is not None and len(known) and float(np.median(known)) > 1e17 else 1000


def _whole(value: Any) -> int:
    number = _number(value)
    if not 0 < number < _LATEST_NS / 2:
        return 0
    return int(value) if isinstance(value, (int, str)) and str(value).isdecimal() else int(number)


def _where(event: Event) -> tuple[Any, Any]:
    pid, tid = event.pid, event.tid
    plain = (int, float, str, type(None))
    return (
        pid if isinstance(pid, plain) else str(pid)[:80],
        tid if isinstance(tid, plain) else str(tid)[:80],
    )


def _arguments(events: list[Event], category: np.ndarray) -> tuple[dict[int, Args], np.ndarray]:
    """Arguments of those asked for, by position, and what joins a kernel with its launch."""
    on_device = np.isin(category, (Category.RUNTIME, Category.KERNEL, Category.COPY))
    correlation = np.full(len(events), -1, np.int64)
    details = {}
    wanted = {name for name in {event.name for event in events} if name.startswith(ASKED)}
    for position, (event, device) in enumerate(zip(events, on_device.tolist(), strict=True)):
        asked = event.name in wanted
        found = arguments(event) if asked or device else None
        if found is None:
            continue
        if isinstance(found.correlation, int) and 0 <= found.correlation < 2**62:
            correlation[position] = found.correlation
        if asked:
            details[position] = found
    return details, correlation
