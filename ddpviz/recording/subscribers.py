"""Callbacks for live readers, which cannot break who calls them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from ddpviz.events import Batch

_log = logging.getLogger("ddpviz")


class Subscribers:
    """A list of callbacks; any thread may add, remove and call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[Batch], None]] = []
        self._complained: set[int] = set()

    def add(self, callback: Callable[[Batch], None]) -> Callable[[], None]:
        """Returns what removes it again; removing twice is fine."""
        with self._lock:
            self._callbacks.append(callback)

        def remove() -> None:
            with self._lock:
                if callback in self._callbacks:
                    self._callbacks.remove(callback)

        return remove

    def __call__(self, batch: Batch) -> None:
        with self._lock:
            callbacks = list(self._callbacks)
        for callback in callbacks:
            try:
                callback(batch)
            except Exception:
                if id(callback) not in self._complained:
                    self._complained.add(id(callback))
                    _log.exception("a subscriber of the recording raised; said once")
