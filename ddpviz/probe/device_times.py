"""When work ran on a device, not when the host enqueued it; without the host ever waiting for it.

A :class:`Mark` is the host's time, an int as any other, and an event in the stream at that place of
the program. Spans that begin or end with marks are held back until the device has passed both, and
then written with the device's times. Event times count from an anchor: an event on an idle stream
in every step, so that no interval is long enough for a float32 of milliseconds to lose anything.

What an event is comes from outside (:mod:`ddpviz.probe.cuda_events`): nothing here knows of CUDA.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from ddpviz.events import NO_GROUP, Clock, DeviceClock, Flag, Kind

_HOST, _CUDA, _ENQUEUED = int(Kind.HOST), int(Clock.CUDA), int(Flag.ENQUEUED)
#: Whose host's side is there already: a collective's launch, the Reducer's own times.
_ALONE = frozenset((int(Kind.COLLECTIVE_DONE), int(Kind.GRAD_READY)))
#: Spans that may be held back at a time; what comes beyond has the host's times.
_MOST_PENDING = 20_000
#: How long ``close`` waits for the device, at most.
_LAST_S = 2.0
#: Anchors between two notes on the clock.
_ANCHORS_PER_NOTE = 500

Row = tuple[int, ...]
#: A row, the marks that it begins and ends with, and what to do when the device was there.
Held = tuple[Row, "Mark | None", "Mark | None", Callable[[], object]]


def _nothing() -> None:
    pass


class Event(Protocol):
    """A place in a stream."""

    def query(self) -> bool:
        """Whether the device has passed it."""

    def since_ns(self, earlier: Any) -> float:
        """Time between two that were passed, by the device's clock."""


class Events(Protocol):
    """Makes events, and takes back those that are no longer needed."""

    resolution_ns: int

    def record(self) -> Event | None:
        """One in the current stream; None where there can be none (a graph is being captured)."""

    def anchor(self) -> Event:
        """One in a stream that has nothing else to do."""

    def free(self, event: Any) -> None: ...


class Mark(int):
    """The host's time in ns, with the event that was recorded then, and what that counts from."""

    event: Any
    anchor: Anchor
    free: Callable[[Any], None]

    def __del__(self) -> None:  # several spans may share a mark: the last one frees its event
        self.free(self.event)


class Anchor:
    """An event whose time by the host's clock is known, to within ``uncertainty_ns``."""

    def __init__(self, event: Event, before_ns: int, after_ns: int) -> None:
        self.event = event
        self.host_ns = after_ns
        self.uncertainty_ns = after_ns - before_ns


class DeviceTimes:
    """Of one recorder on one device. ``write``: takes rows; ``note``: takes notes."""

    def __init__(
        self,
        events: Events,
        write: Callable[..., None],
        note: Callable[[Any], None],
        rank: int,
        device: str,
    ) -> None:
        self._events, self._write_rows, self._note = events, write, note
        self._rank, self._device = rank, device
        self._anchor: Anchor | None = None
        self._first: Anchor | None = None
        self._anchors = 0
        self._uncertainty_ns = 0
        self._pending: deque[Held] = deque()
        self._asking = threading.Lock()  # held while nothing may be asked of the device

    def now(self) -> int:
        """The host's time, and where the stream is."""
        now_ns = time.time_ns()
        if self._anchor is None or len(self._pending) >= _MOST_PENDING:
            return now_ns
        event = self._events.record()
        if event is None:
            return now_ns
        mark = Mark(now_ns)
        mark.event, mark.anchor, mark.free = event, self._anchor, self._events.free
        return mark

    def step_begins(self) -> None:
        """A new anchor."""
        before_ns = time.time_ns()
        event = self._events.anchor()
        anchor = Anchor(event, before_ns, time.time_ns())
        self._anchor = anchor
        self._first = self._first or anchor
        self._anchors += 1
        self._uncertainty_ns = max(self._uncertainty_ns, anchor.uncertainty_ns)

    def write(self, *rows: Row) -> None:
        """As the ring's own: rows that begin or end with a mark come when the device is there.

        At once comes the host's side of them, so that a rank that is killed leaves at least that.
        """
        now = []
        for row in rows:
            if type(row[0]) is not Mark and type(row[1]) is not Mark:
                now.append(row)
                continue
            if row[10] not in _ALONE:
                now.append(_host_side(row))
            self.defer(row, _nothing)
        if now:
            self._write_rows(*now)

    def defer(self, row: Row, then: Callable[[], object]) -> None:
        """One row, and what to do when the device is there."""
        begin, end = row[0], row[1]
        marks = (begin if type(begin) is Mark else None, end if type(end) is Mark else None)
        self._pending.append((row, *marks, then))

    def resolve(self) -> None:
        """Write what the device has passed since. From any thread; never waits."""
        if self._asking.acquire(blocking=False):
            try:
                self._resolve()
            finally:
                self._asking.release()

    def pause(self) -> None:
        """Ask nothing of the device, until :meth:`go_on`."""
        self._asking.acquire()

    def go_on(self) -> None:
        """The device may be asked again. Not an error where it may already."""
        if self._asking.locked():
            self._asking.release()

    def _resolve(self) -> None:
        waiting = []
        for _ in range(len(self._pending)):
            held = self._pending.popleft()
            if not self._resolved(held):
                waiting.append(held)
        self._pending.extendleft(reversed(waiting))
        if self._anchors >= _ANCHORS_PER_NOTE:
            self._tell()

    def _resolved(self, held: Held) -> bool:
        row, begin, end, then = held
        for mark in (end, begin):
            if mark is not None and not (mark.event.query() and mark.anchor.event.query()):
                return False
        begin_ns = row[0] if begin is None else _device_ns(begin)
        end_ns = row[1] if end is None else _device_ns(end)
        flags = row[9] & ~_ENQUEUED
        self._write_rows((begin_ns, max(end_ns, begin_ns), *row[2:9], flags, *row[10:14], _CUDA))
        then()
        return True

    def close(self) -> None:
        """Wait a little for the device; what it has not passed then keeps the host's times."""
        deadline = time.monotonic() + _LAST_S
        self.resolve()
        while self._pending and time.monotonic() < deadline:
            time.sleep(0.002)
            self.resolve()
        while self._pending:
            row, *_ = self._pending.popleft()
            self._write_rows((int(row[0]), int(row[1]), *row[2:9], row[9] | _ENQUEUED, *row[10:]))
        self._tell()

    def _tell(self) -> None:
        """What is known of the clock, from the first anchor to the last that was passed."""
        first, last = self._first, self._anchor
        if first is None or last is None or not (first.event.query() and last.event.query()):
            return
        self._anchors = 0
        host_ns = last.host_ns - first.host_ns
        drift = 0.0
        if host_ns > 0 and first is not last:
            drift = (last.event.since_ns(first.event) / host_ns - 1) * 1e6
        self._note(
            DeviceClock(
                self._rank,
                time.time_ns(),
                self._device,
                self._events.resolution_ns,
                self._uncertainty_ns,
                drift,
            )
        )
        self._first, self._uncertainty_ns = last, last.uncertainty_ns


def _device_ns(mark: Mark) -> int:
    return mark.anchor.host_ns + round(mark.event.since_ns(mark.anchor.event))


def _host_side(row: Row) -> Row:
    """The host's part of a span, as a record of its own: ``index`` is the span's kind."""
    begin_ns, end_ns, _, step, iteration, _, _, label, rank, flags, kind, cause, module, _, _ = row
    return (
        int(begin_ns), int(end_ns), 0, step, iteration, kind, -1, label, rank, flags, _HOST,
        cause, module, NO_GROUP, 0,
    )  # fmt: skip
