"""Run in the kernel: when the ranks' records came to it, and how many there are."""

from __future__ import annotations

import threading
import time
from typing import Any

from ddpviz.events import Kind


class Meter:
    """Listens to a recording. ``ends``: keep when each step's end was recorded, and came here."""

    def __init__(self, recording: Any, ends: bool = True) -> None:
        self._recording = recording
        self._ends = ends
        self._lock = threading.Lock()
        self._found: list[tuple[int, int, int, int]] = []
        self._events = 0
        self._oldest_ns = 0
        self._lags_ms: list[float] = []
        self._stop = recording.subscribe(self._heard)

    def _heard(self, batch: Any) -> None:
        came_ns, records = time.time_ns(), batch.records
        ended = records[(records["kind"] == Kind.STEP) & (records["end_ns"] > 0)]
        with self._lock:
            self._events += len(records)
            if self._ends and len(ended):
                rows = zip(ended["step"].tolist(), ended["end_ns"].tolist(), strict=True)
                self._found += [(batch.rank, step, end_ns, came_ns) for step, end_ns in rows]
            if len(ended):
                # The oldest of a batch waited longest for it to leave.
                self._lags_ms.append((came_ns - int(ended["end_ns"].min())) / 1e6)

    def take(self) -> dict[str, Any]:
        """What came since the last call; ``ends``: (rank, step, end_ns, when it came)."""
        with self._lock:
            found, self._found = self._found, []
            events, self._events = self._events, 0
            lags, self._lags_ms = self._lags_ms, []
        return {"ends": found, "events": events, "lags_ms": lags, **self.store()}

    def store(self) -> dict[str, Any]:
        """How much the recording has in memory, and the kernel's threads by name."""
        return {
            "stored": len(self._recording),
            "store_bytes": self._recording.memory_bytes,
            "missing": sum(self._recording.missing.values()),
            "now_ns": time.time_ns(),
            "threads": {one.name: one.native_id for one in threading.enumerate()},
        }

    def close(self) -> None:
        """Listen no longer."""
        self._stop()
