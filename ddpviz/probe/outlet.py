"""What leaves a training process: its ring of records, its notes, and who sends them."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ddpviz import events
from ddpviz.events import Batch, Note
from ddpviz.probe.ring import Ring

Sink = Callable[[Batch], None]

_WATCH_SECONDS = 1.0


class Outlet:
    """Records and notes on their way from any thread to the sinks.

    ``interval_s``: seconds between two flushes. A flush takes milliseconds of a core beside the
    training, so it is rare where nobody looks; the ring keeps what was written in between.
    ``watch``: called each second on that thread, which runs also while training hangs.
    """

    def __init__(
        self,
        rank: int,
        sinks: Sequence[Sink],
        capacity: int,
        ring_path: str | Path | None,
        interval_s: float,
        watch: Callable[[], None] = lambda: None,
    ):
        self.interval_s = interval_s
        self._watch = watch
        self._rank = rank
        self._sinks = list(sinks)
        # A full ring is flushed by the writer's own thread: nothing is dropped.
        self._wake = threading.Event()
        self._ring = Ring(capacity, rank, ring_path, make_room=self.flush, wake=self._wake.set)
        #: The ring's own methods: :meth:`Ring.write`, :meth:`Ring.write_ready`.
        self.write, self.write_ready = self._ring.write, self._ring.write_ready
        self._labels: dict[str, int] = {"": 0}
        self._notes: list[Note] = []
        # Not of one thread's alone: a signal handler may come in the middle of either.
        self._lock = threading.RLock()
        self._flush_lock = threading.RLock()
        self._flushing = False
        self._batches = 0
        self._said: list[str] = []
        self._sinks_failed = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="ddpviz-flush", daemon=True)

    def start(self) -> None:
        """From now on batches leave by themselves; what is there already leaves at once."""
        self._thread.start()
        self.flush()

    def close(self) -> None:
        """Flush, end the thread, close ring and sinks."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        self.flush()
        self._ring.close(keep=self._sinks_failed)
        for sink in self._sinks:
            close = getattr(sink, "close", None)
            if close is not None:
                close()
        self._sinks.clear()  # what still knows this recorder keeps no recording alive

    def note(self, note: Note, at_once: bool = True) -> None:
        """A note goes out before the records that refer to it, and at once: the ring has no notes.
        ``at_once``: false for what may come with every step, and can be lost with it.

        By the flush thread: flushing here would put milliseconds of file and network work between
        a bucket's launch and the end of its backward, and so into what is measured.
        """
        with self._lock:
            self._notes.append(note)
        if at_once:
            self._wake.set()

    def label(self, text: str) -> int:
        """The id of a text, interned."""
        found = self._labels.get(text)
        if found is None:
            with self._lock:
                found = self._labels.setdefault(text, len(self._labels) % 65_536)
            self.note(events.Label(found, text))
        return found

    def flush(self) -> None:
        """Hand everything written so far to the sinks. From any thread."""
        with self._flush_lock:
            if self._flushing:
                return
            self._flushing = True
            try:
                self._flush()
            finally:
                self._flushing = False

    def _flush(self) -> None:
        records = self._ring.take()
        with self._lock:
            notes, self._notes = tuple(self._notes), []
        if not len(records) and not notes:
            return
        batch = Batch(self._rank, self._batches, records, notes)
        self._batches += 1
        for sink in self._sinks:
            try:
                sink(batch)
            except Exception as error:
                self._sinks_failed = True
                what = f"{type(error).__name__}: {error}"
                self.say(f"{sink!r} did not take a batch, which is missing there ({what})")
        self._ring.flushed()

    @property
    def written(self) -> int:
        """Slots of the ring written so far: it grows with whatever is recorded."""
        return self._ring.written

    def say(self, message: str) -> None:
        """To stderr, each message once; training goes on."""
        if message not in self._said:
            self._said.append(message)
            print(f"ddpviz: {message}", file=sys.stderr)

    def _run(self) -> None:
        flushed = time.monotonic()
        while not self._stopping:
            due = flushed + self.interval_s - time.monotonic()
            woken = self._wake.wait(max(0.0, min(due, _WATCH_SECONDS)))
            self._wake.clear()
            try:
                self._watch()
                if woken or time.monotonic() - flushed >= self.interval_s:
                    flushed = time.monotonic()
                    self.flush()
            except Exception as error:  # recording must not stop for good
                self.say(f"a batch was not written: {type(error).__name__}: {error}")
