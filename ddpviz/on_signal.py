"""SIGUSR1 prints what everyone is waiting for, also while the training thread hangs in C++.

A Python handler runs when the main thread comes back to Python, which a hung one never does. But
Python's C handler writes the signal's number to a wakeup descriptor at once, and a thread of ours
reads it.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddpviz.printable import printable

_NUMBER: int | None = getattr(signal, "SIGUSR1", None)
#: How long closing waits for what is being told.
_LEAVES_S = 1.0


def _handled_in_c(number: int) -> bool:
    """Whether something catches the signal that Python knows nothing of."""
    if signal.getsignal(number) is None:
        return True
    try:
        text = Path("/proc/self/status").read_text()
        caught = next(line for line in text.splitlines() if line.startswith("SigCgt"))
    except (OSError, StopIteration):  # no Linux
        return False
    known = callable(signal.getsignal(number))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1) and not known


_installed: weakref.WeakSet[OnSignal] = weakref.WeakSet()


def _forget() -> None:
    """In a forked child, which shares the socket: what it would write there is no question to its
    parent, so the signal means again what it meant before."""
    for one in list(_installed):
        one.close(forked=True)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class OnSignal:
    """From now on SIGUSR1 calls ``tell`` on a thread and prints the text on stderr.

    A handler that was there is called as before. Nothing happens where Python lets no handler be
    set (not on the main thread, or no such signal) and where C code has one of its own, as
    faulthandler.register does; where something else has the wakeup descriptor (an asyncio loop with
    signal handlers) it works only when the main thread runs Python.
    """

    def __init__(self, tell: Callable[[], str]) -> None:
        self._tell = tell
        self._before: Any = None
        self._thread: threading.Thread | None = None
        self._asked, self._ask = socket.socketpair()
        self._installed = _NUMBER is not None and self._install(_NUMBER)

    def _install(self, number: int) -> bool:
        self._ask.setblocking(False)
        if _handled_in_c(number):
            return False
        try:
            self._before = signal.signal(number, self._handle)
        except (ValueError, OSError):  # not on the main thread
            return False
        _installed.add(self)
        others = signal.set_wakeup_fd(self._ask.fileno(), warn_on_full_buffer=False)
        if others != -1:
            signal.set_wakeup_fd(others)
        self._thread = threading.Thread(target=self._run, name="ddpviz-signal", daemon=True)
        self._thread.start()
        return True

    def _handle(self, number: int, frame: Any) -> None:
        """When the main thread runs Python. Whether the descriptor was ours is found out here."""
        ours = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(ours)
        if ours != self._ask.fileno():
            try:
                self._ask.send(bytes([number]))
            except OSError:  # it was asked so often that nobody has read it yet
                pass
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
        lines = printable(text).splitlines()
        print("".join(f"ddpviz: {line}\n" for line in lines), end="", file=sys.stderr, flush=True)

    def close(self, *, forked: bool = False) -> None:
        """Put back what was there; idempotent. Off the main thread the handler stays, and calls
        what was there. Where that was nothing, the signal is ignored from now on, but in a
        ``forked`` child: who asks a moment too late must not end a job."""
        if self._installed and _NUMBER is not None:
            before = self._before
            if before == signal.SIG_DFL and not forked:
                before = signal.SIG_IGN
            try:
                if signal.getsignal(_NUMBER) == self._handle:
                    signal.signal(_NUMBER, before)
                ours = signal.set_wakeup_fd(-1)
                if ours != self._ask.fileno():
                    signal.set_wakeup_fd(ours)
            except (ValueError, TypeError, OSError):
                return
            self._installed = False
        self._ask.close()
        thread = self._thread
        if thread is not None and not forked and thread is not threading.current_thread():
            thread.join(_LEAVES_S)  # until then it keeps what it tells of alive
        self._asked.close()
