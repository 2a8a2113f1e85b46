"""One line that says how far something is: rewritten on a terminal or in a notebook.

On stderr; in a notebook on stdout, where nothing is wrong that needs a red box.
"""

from __future__ import annotations

import sys
import time
from typing import TextIO


class Progress:
    """``update(done)`` shows "WHAT 3 of 20, 1.5 s"; a context manager ends the line.

    Where that is a file, a line is written only when something is done, at most one a second.
    """

    def __init__(self, what: str, total: int):
        self._what = what
        self._total = total
        self._begin = time.monotonic()
        self._stream = _stream()
        self._rewrites = self._stream.isatty() or _in_notebook()
        self._shown: tuple[int, str] | None = None
        self._shown_at = float("-inf")
        self._width = 0

    def __enter__(self) -> Progress:
        self.update(0)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._rewrites:
            print(file=self._stream, flush=True)

    def update(self, done: int, note: str = "") -> None:
        """``note``: what is going on, added in words."""
        now = time.monotonic()
        news = (done, note) != self._shown
        if not (self._rewrites and (news or now - self._shown_at > 0.5)) and not (
            news and (done in (0, self._total) or now - self._shown_at > 1)
        ):
            return
        self._shown, self._shown_at = (done, note), now
        seconds = now - self._begin
        text = f"ddpviz: {self._what} {done} of {self._total}, {seconds:.1f} s"
        text += f", {note}" if note else ""
        if self._rewrites:
            text, self._width = f"\r{text.ljust(self._width)}", len(text)
        print(text, end="" if self._rewrites else "\n", file=self._stream, flush=True)


def say(text: str) -> None:
    """A line of its own."""
    print(f"ddpviz: {text}", file=_stream(), flush=True)


def _stream() -> TextIO:
    return sys.stdout if _in_notebook() else sys.stderr


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")
