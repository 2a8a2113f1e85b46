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
#: No mark counts from an anchor that is older: a float32 of milliseconds would lose digits.
_LONGEST_NS = 1_000_000_000
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

    def anchor(self) -> Event | None:
        """One in a stream that has nothing else to do; None where there can be none."""

    def free(self, event: Any) -> None: ...


class Mark(int):
    """The host's time in ns, with the event that was recorded then, and what that counts from."""

    event: Any
    anchor: Anchor
    free: Callable[[Any], None]

    def __del__(self) -> None:  # several spans may share a mark: the last one frees its event
        self.free(self.event)


class Anchor:
    """An event whose time by the host's clock is known: not before ``before_ns``, and about when
    the host's call returned, ``host_ns``; ``seen_ns``: when the device was first seen past it, 0
    while it was not."""

    def __init__(self, event: Event, before_ns: int, after_ns: int) -> None:
        self.event = event
        self.before_ns, self.host_ns = before_ns, after_ns
        self.seen_ns = 0


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
        self._asking = threading.RLock()  # of those who ask the device, or forbid it
        self._paused = 0
        self._failed = ""

    def now(self) -> int:
        """The host's time, and where the stream is."""
        now_ns = time.time_ns()
        anchor = self._anchor
        if anchor is None or self._failed or len(self._pending) >= _MOST_PENDING:
            return now_ns
        try:
            if now_ns - anchor.host_ns > _LONGEST_NS:  # as in an evaluation, which is no step
                self.step_begins()
                anchor = self._anchor
            event = self._events.record()
            if event is None or anchor is None:
                return now_ns
            self._see(anchor)
        except RuntimeError as error:  # the device is lost: what comes has the host's times
            self._fail(error)
            return now_ns
        mark = Mark(now_ns)
        mark.event, mark.anchor, mark.free = event, anchor, self._events.free
        return mark

    def step_begins(self) -> None:
        """A new anchor."""
        if self._failed:
            return
        before_ns = time.time_ns()
        try:
            event = self._events.anchor()
        except RuntimeError as error:
            self._fail(error)
            return
        if event is None:
            return
        anchor = Anchor(event, before_ns, time.time_ns())
        self._anchor = anchor
        self._first = self._first or anchor
        self._anchors += 1

    def _see(self, anchor: Anchor) -> None:
        """Find out, once, when the device had passed it at the latest."""
        if not anchor.seen_ns and anchor.event.query():
            anchor.seen_ns = time.time_ns()
            self._uncertainty_ns = max(self._uncertainty_ns, anchor.seen_ns - anchor.before_ns)

    def _fail(self, error: RuntimeError) -> None:
        """The device answers no more. What is held back has the host's times; training's own error
        is told where it comes up."""
        if not self._failed:
            self._failed = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        self._give_up()

    def _give_up(self) -> None:
        while self._pending:
            row, _, _, then = self._pending.popleft()
            self._write_rows((int(row[0]), int(row[1]), *row[2:9], row[9] | _ENQUEUED, *row[10:]))
            then()

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
        with self._asking:
            if not self._paused:
                try:
                    self._resolve()
                except RuntimeError as error:
                    self._fail(error)

    def pause(self) -> None:
        """Ask nothing of the device, until :meth:`go_on` was called as often."""
        with self._asking:
            self._paused += 1

    def go_on(self) -> None:
        """The device may be asked again. Not an error where it may already."""
        with self._asking:
            self._paused = max(self._paused - 1, 0)

    def _resolve(self) -> None:
        for _ in range(len(self._pending)):
            held = self._pending.popleft()
            try:
                if not self._resolved(held):
                    self._pending.append(held)
            except RuntimeError:
                self._pending.appendleft(held)  # nothing that was recorded is lost
                raise
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
        self._give_up()
        try:
            self._tell()
        except RuntimeError:
            pass

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
        self._first, self._uncertainty_ns = last, 0


def _device_ns(mark: Mark) -> int:
    return mark.anchor.host_ns + round(mark.event.since_ns(mark.anchor.event))


def _host_side(row: Row) -> Row:
    """The host's part of a span, as a record of its own: ``index`` is the span's kind."""
    begin_ns, end_ns, _, step, iteration, _, _, label, rank, flags, kind, cause, module, _, _ = row
    return (
        int(begin_ns), int(end_ns), 0, step, iteration, kind, -1, label, rank, flags, _HOST,
        cause, module, NO_GROUP, 0,
    )  # fmt: skip
