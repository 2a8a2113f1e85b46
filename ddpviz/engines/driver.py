"""One thread that does everything a session does on its engines, one after another."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from ddpviz.engines.errors import SessionError


class GiveUp:
    """Whether what the driver waits for is to be waited for no longer; it asks now and then.

    ``why``: set from any thread, "" to wait.
    """

    def __init__(self) -> None:
        self.why = ""

    def __call__(self) -> str:
        return self.why

    def until_done(self, future: Future[Any], why: str) -> None:
        """As long as this one is not done."""
        self.why = why
        future.add_done_callback(self._wait_again)

    def _wait_again(self, _: Future[Any]) -> None:
        self.why = ""


class Driver:
    """First in, first out: what is submitted while steps run in chunks comes between two chunks.

    The thread is a daemon: an engine that never answers cannot keep the interpreter from ending.
    """

    def __init__(self) -> None:
        self.closed = False
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = (
            queue.SimpleQueue()
        )
        self._thread = threading.Thread(target=self._work, name="ddpviz-driver", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        """Do it when its turn comes. After :meth:`close` the future has a SessionError."""
        future: Future[Any] = Future()
        with self._lock:
            if not self.closed:
                self._queue.put((work, future))
                return future
        future.set_exception(SessionError("the session is closed: make a new one"))
        return future

    def close(self) -> None:
        """End the thread after what is queued; nothing may be submitted any more."""
        with self._lock:
            if not self.closed:
                self.closed = True
                self._queue.put(None)

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            work, future = item
            try:
                result = work()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
            del work, future, item
