"""Kineto's JSON as Python has it: one small struct per event, arguments left as they lie.

Of a large file the structs of a block of events are there at a time: all of them together take
four times the file's size.
"""

from __future__ import annotations

import dataclasses
import itertools
import mmap
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ddpviz.traces.errors import TraceError


class Event(msgspec.Struct, gc=False):
    """One event. ``args`` is not looked into: of most events nobody asks."""

    ph: str = ""
    name: str = ""
    cat: str = ""
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = 0
    args: msgspec.Raw = msgspec.Raw(b"null")


class Args(msgspec.Struct, gc=False):
    """What is asked of the arguments of the events that matter."""

    correlation: Any = None
    external: Any = msgspec.field(default=None, name="External id")
    collective: Any = msgspec.field(default=None, name="Collective name")
    elements: Any = msgspec.field(default=None, name="In msg nelems")
    dtype: Any = None
    group: Any = msgspec.field(default=None, name="Process Group Name")
    members: Any = msgspec.field(default=None, name="Process Group Ranks")
    dims: Any = msgspec.field(default=None, name="Input Dims")
    types: Any = msgspec.field(default=None, name="Input type")
    name: Any = None
    labels: Any = None


class NoEvents(TraceError):
    """JSON without traceEvents: no trace, but perhaps something else that is known."""


class _Root(msgspec.Struct):
    traceEvents: list[Event] | msgspec.UnsetType = msgspec.UNSET
    distributedInfo: Any = None
    baseTimeNanoseconds: Any = None
    host_name: Any = None
    ddpviz: Any = None


class _Undecoded(msgspec.Struct):
    traceEvents: list[msgspec.Raw] | msgspec.UnsetType = msgspec.UNSET
    distributedInfo: Any = None
    baseTimeNanoseconds: Any = None
    host_name: Any = None
    ddpviz: Any = None


class _Lenient(msgspec.Struct):
    traceEvents: Any = msgspec.UNSET
    distributedInfo: Any = None
    baseTimeNanoseconds: Any = None
    host_name: Any = None
    entries: Any = msgspec.UNSET


@dataclasses.dataclass(frozen=True)
class Decoded:
    """``left_out``: how many events were not as events are, in what was already decoded. The others
    are what the file says of the rank, the clock and the host, unchecked; ``exported``: what ddpviz
    said of its own."""

    events: Sequence[Event | msgspec.Raw]
    left_out: int
    distributed: Any
    base_ns: Any
    host: Any
    exported: Any = None

    def blocks(self) -> Iterator[tuple[list[Event], int]]:
        """All events, so many at a time, and how many of the block were not as events are."""
        rest = iter(self.events)
        while block := list(itertools.islice(rest, _BLOCK)):
            found = [one if isinstance(one, Event) else _event(one) for one in block]
            good = [one for one in found if one is not None]
            yield good, len(block) - len(good)


#: Events that are decoded at a time, and from how many bytes on they are.
_BLOCK, _LARGE_BYTES = 200_000, 200_000_000
_ROOT = msgspec.json.Decoder(_Root)
_LIST = msgspec.json.Decoder(list[Event])
_UNDECODED = msgspec.json.Decoder(_Undecoded)
_RAWS = msgspec.json.Decoder(list[msgspec.Raw])
_EVENT = msgspec.json.Decoder(Event)
_ARGS = msgspec.json.Decoder(Args)
#: JSON has no such numbers, but some versions of the profiler write them.
_NO_NUMBER = re.compile(rb"([:,\[]\s*)-?(?:nan|inf(?:inity)?)(?=\s*[,\]}])", re.IGNORECASE)


def decode(path: Path, data: bytes | mmap.mmap | memoryview) -> Decoded:
    """Events of a file. Raises :class:`TraceError` for what is cut, broken or no trace."""
    try:
        return _decode(path, data)
    except msgspec.ValidationError:
        return _tolerantly(path, data)
    except msgspec.DecodeError as error:
        cured, count = _NO_NUMBER.subn(rb"\1null", bytes(data))
        if not count:
            raise _broken(path, error) from None
        try:
            return _tolerantly(path, cured)
        except msgspec.DecodeError as again:
            raise _broken(path, again) from None
    except (UnicodeDecodeError, RecursionError, MemoryError) as error:
        raise _broken(path, error) from None


def arguments(event: Event) -> Args | None:
    """What is asked of an event's arguments; None where they are no object."""
    try:
        return _ARGS.decode(event.args)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _event(raw: msgspec.Raw) -> Event | None:
    try:
        return _EVENT.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _decode(path: Path, data: bytes | mmap.mmap | memoryview) -> Decoded:
    large = len(data) >= _LARGE_BYTES
    if bytes(data[:64]).lstrip()[:1] == b"[":
        return Decoded((_RAWS if large else _LIST).decode(data), 0, None, None, None)
    root: _Root | _Undecoded = (_UNDECODED if large else _ROOT).decode(data)
    if isinstance(root.traceEvents, msgspec.UnsetType):
        raise NoEvents(
            f"found JSON without traceEvents in {path}, expected a profiler trace: check the file"
        )
    return Decoded(
        root.traceEvents,
        0,
        root.distributedInfo,
        root.baseTimeNanoseconds,
        root.host_name,
        root.ddpviz,
    )


def _tolerantly(path: Path, data: bytes | mmap.mmap | memoryview) -> Decoded:
    """Event by event, without those that are none."""
    try:
        if bytes(data[:64]).lstrip()[:1] == b"[":
            raws, root = _RAWS.decode(data), _Lenient()
        else:
            root = msgspec.json.decode(data, type=_Lenient)
            whole = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
            raws = _RAWS.decode(whole.get("traceEvents", msgspec.Raw(b"null")))
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at ")
        if where and "traceEvents" not in where:
            raise TraceError(
                f"found {what.lower()} at {where} of {path}, expected a profiler trace: check the "
                "file"
            ) from None
        raise TraceError(
            f"found JSON in {path} whose traceEvents are no list of events, expected a profiler "
            "trace: check the file"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, MemoryError) as error:
        raise _broken(path, error) from None
    events = [event for event in map(_event, raws) if event is not None]
    if raws and not events:
        raise TraceError(
            f"found no event among the {len(raws)} traceEvents of {path}, expected a profiler "
            "trace: check the file"
        )
    return Decoded(
        events,
        len(raws) - len(events),
        root.distributedInfo,
        root.baseTimeNanoseconds,
        root.host_name,
    )


def _broken(path: Path, error: BaseException) -> TraceError:
    said = str(error)
    if "truncated" in said:
        return TraceError(
            f"found {path} cut before its end, expected a whole trace: copy it again, or wait "
            "until the profiler has written it"
        )
    if isinstance(error, RecursionError):
        return TraceError(f"found JSON in {path} nested without end, expected a profiler trace")
    if isinstance(error, MemoryError):
        return TraceError(f"found too little memory to read {path}: read it on a larger machine")
    return TraceError(f"found broken JSON in {path} ({said}), expected a profiler trace")
