"""SIGUSR1 prints what everyone is waiting for, also while the training thread hangs in C++.

A Python handler runs when the main thread comes back to Python, which a hung one never does. But
Python's C handler writes the signal's number to a wakeup descriptor at once, and a thread of ours
reads it.
"""

from __future__ import annotations

import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

_NUMBER: int | None = getattr(signal, "SIGUSR1", None)


class OnSignal:
    """From now on SIGUSR1 calls ``tell`` on a thread and prints the text on stderr.

    A handler that was there is called as before. Nothing happens where Python lets no handler be
    set (not on the main thread, or no such signal); where something else has the wakeup descriptor
    (an asyncio loop with signal handlers) it works only when the main thread runs Python.
    """

    def __init__(self, tell: Callable[[], str]) -> None:
        self._tell = tell
        self._before: Any = None
        self._asked, self._ask = socket.socketpair()
        self._installed = _NUMBER is not None and self._install(_NUMBER)

    def _install(self, number: int) -> bool:
        self._ask.setblocking(False)
        try:
            self._before = signal.signal(number, self._handle)
        except ValueError:  # not on the main thread
            return False
        others = signal.set_wakeup_fd(self._ask.fileno(), warn_on_full_buffer=False)
        if others != -1:
            signal.set_wakeup_fd(others)
        threading.Thread(target=self._run, name="ddpviz-signal", daemon=True).start()
        return True

    def _handle(self, number: int, frame: Any) -> None:
        """When the main thread runs Python. Whether the descriptor was ours is found out here."""
        ours = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(ours)
        if ours != self._ask.fileno():
            self._ask.send(bytes([number]))
        if callable(self._before):
            self._before(number, frame)

    def _run(self) -> None:
        while True:
            try:
                numbers = self._asked.recv(64)
            except OSError:
                return
            if not numbers:
                return
            if _NUMBER is not None and _NUMBER in numbers:  # others' signals come here too
                self._say()

    def _say(self) -> None:
        try:
            text = self._tell()
        except Exception as error:
            text = f"what everyone waits for cannot be told: {type(error).__name__}: {error}"
        print("".join(f"ddpviz: {line}\n" for line in text.splitlines()), end="", file=sys.stderr)
        sys.stderr.flush()

    def close(self) -> None:
        """Put back what was there; idempotent. Off the main thread the handler stays, and calls
        what was there."""
        if self._installed and _NUMBER is not None:
            try:
                if signal.getsignal(_NUMBER) == self._handle:
                    signal.signal(_NUMBER, self._before)
                ours = signal.set_wakeup_fd(-1)
                if ours != self._ask.fileno():
                    signal.set_wakeup_fd(ours)
            except ValueError:
                return
            self._installed = False
        self._ask.close()
        self._asked.close()
