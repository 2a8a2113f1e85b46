"""A backward's grad-ready times in the ring: one header slot, then the numbers alone.

A record per parameter would cost the training thread more than all else that is recorded of a
step. So it packs the Reducer's list as it is, and the records are made where the ring is read.
Torch-free.
"""

from __future__ import annotations

import functools
import struct

import numpy as np

from ddpviz.events import NO_GROUP, RECORD, Clock, Kind

#: In the ring only; never leaves it. ``begin_ns``: what the times count from; ``index``: how many
#: follow, as int64 nanoseconds, 0 for a parameter that was not marked ready.
PACKED_READY = 255

_SLOT_BYTES = RECORD.itemsize


@functools.lru_cache(maxsize=64)
def layout(count: int) -> tuple[struct.Struct, int]:
    """How so many times are packed, and how many slots they take."""
    packer = struct.Struct(f"<{count}q")
    return packer, -(-packer.size // _SLOT_BYTES)


def packed(header: tuple[int, ...], times: list[int]) -> np.ndarray:
    """The slots of packed times, as they would lie in a ring. ``header``: without ``spare``."""
    packer, size = layout(len(times))
    slots = np.zeros(1 + size, RECORD)
    slots[0] = (*header, 0)
    slots[1:] = np.frombuffer(packer.pack(*times).ljust(size * _SLOT_BYTES, b"\0"), RECORD)
    return slots


def unpack(slots: np.ndarray) -> np.ndarray:
    """Slots of the ring as records: GRAD_READY records in the place of packed times.

    What is cut off at the end is left out.
    """
    headers, at = [], 0
    single = np.ones(len(slots), bool)  # slots that are a record each
    for header in np.flatnonzero(slots["kind"] == PACKED_READY).tolist():
        if header < at:  # a number that looks like a header
            continue
        at = header + 1 + layout(int(slots["index"][header]))[1]
        single[header:at] = False
        if at <= len(slots):
            headers.append(header)
    if single.all():
        return slots
    # Not one backward after the other: a second of a fast job has a hundred of them.
    found, counts = np.array(headers, np.intp), slots["index"][headers]
    pieces, places = [slots[single]], [np.flatnonzero(single)]
    for count in np.unique(counts).tolist():
        rows, lines = _records(slots, found[counts == count], count)
        pieces.append(rows)
        places.append(lines)
    order = np.argsort(np.concatenate(places), kind="stable")
    return np.concatenate(pieces)[order]


def whole(slots: np.ndarray, laps: np.ndarray) -> int:
    """How many leading slots of a dead process's ring hold what it wrote.

    ``laps``: what ``spare`` of a slot is if it was written in time. Packed times carry none, but
    they are written before their header.
    """
    written = slots["spare"] == laps
    at = 0
    for header in np.flatnonzero(written & (slots["kind"] == PACKED_READY)).tolist():
        if header < at:
            continue
        gaps = np.flatnonzero(~written[at:header])
        if len(gaps):
            return at + int(gaps[0])
        at = header + 1 + layout(int(slots["index"][header]))[1]
    gaps = np.flatnonzero(~written[at:])
    return min(at, len(slots)) + (int(gaps[0]) if len(gaps) else len(written[at:]))


def _records(slots: np.ndarray, headers: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Records of headers that announce as many times each; and of each record its header's slot."""
    size = layout(count)[1]
    lines = slots[headers[:, None] + 1 + np.arange(size)]
    numbers = lines.view(np.uint8).reshape(len(headers), size * _SLOT_BYTES)[:, : 8 * count]
    times = np.ascontiguousarray(numbers).view("<i8")
    backward, fresh = np.nonzero(times)
    places = headers[backward]
    rows = np.zeros(len(places), RECORD)
    rows["begin_ns"] = rows["end_ns"] = times[backward, fresh] + slots["begin_ns"][places]
    rows["index"] = fresh
    rows["sequence"] = -1
    rows["kind"] = Kind.GRAD_READY
    rows["group"] = NO_GROUP
    rows["clock"] = Clock.REDUCER
    for name in ("step", "iteration", "rank", "module"):
        rows[name] = slots[name][places]
    return rows, places
