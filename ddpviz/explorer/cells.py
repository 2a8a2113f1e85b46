"""What a cell on the ranks printed, rank by rank, as it comes; and its errors, each once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

#: Lines that stay in the notebook; a loop that prints every step would fill it.
_MOST_LINES = 2_000
#: The output is written anew at most this often.
_UPDATE_SECONDS = 0.1


class Transcript:
    """Text of all ranks in the order it came, each line with its rank in front.

    ``write`` is called from any thread; ``changed`` with the whole text, at most ten times a
    second, and once more by ``finish``.
    """

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._lock = threading.Lock()
        self._showing = threading.Lock()  # what is shown later has all of what was shown before
        self._lines: list[str] = []
        self._open: dict[tuple[int, str], str] = {}
        self._dropped = 0
        self._ends: list[str] = []
        self._shown_at = 0.0
        self._timer: threading.Timer | None = None

    def write(self, rank: int, stream: str, text: str) -> None:
        """A piece of a rank's stdout or stderr; it need not end where a line ends."""
        with self._lock:
            whole = self._open.pop((rank, stream), "") + text
            *lines, rest = whole.split("\n")
            self._lines += [_prefixed(rank, line) for line in lines]
            if rest:
                self._open[rank, stream] = rest
            if len(self._lines) > _MOST_LINES:
                self._dropped += len(self._lines) - _MOST_LINES
                del self._lines[: len(self._lines) - _MOST_LINES]
            wait = self._shown_at + _UPDATE_SECONDS - time.monotonic()
            if wait > 0:
                if self._timer is None:
                    self._timer = threading.Timer(wait, self._show)
                    self._timer.daemon = True
                    self._timer.start()
                return
        self._show()

    def finish(self, *ends: str) -> None:
        """No more comes; ``ends`` stand below: errors."""
        with self._lock:
            self._ends += [end for end in ends if end]
        self._show()

    def text(self) -> str:
        """All of it."""
        with self._lock:
            return self._text()

    def _text(self) -> str:
        head = [f"… {self._dropped} earlier lines left out"] if self._dropped else []
        tail = [_prefixed(rank, rest) for (rank, _), rest in sorted(self._open.items())]
        return "\n".join([*head, *self._lines, *tail, *self._ends])

    def _show(self) -> None:
        with self._showing:
            with self._lock:
                self._timer, self._shown_at = None, time.monotonic()
                text = self._text()
            self._changed(text)


def _prefixed(rank: int, line: str) -> str:
    # A progress bar rewrites its line: what it last wrote is what a terminal would show.
    return f"[{rank}] {line.rstrip(chr(13)).rsplit(chr(13), 1)[-1]}"


def errors_text(errors: Mapping[int, Any]) -> str:
    """Errors of ranks (Problem by rank), the same one of several ranks once; "" for none."""
    groups: dict[str, list[int]] = {}
    for rank in sorted(errors):
        groups.setdefault(str(errors[rank].message), []).append(rank)
    parts = []
    for message, ranks in groups.items():
        problem = errors[ranks[0]]
        text = problem.text() if callable(getattr(problem, "text", None)) else message
        who = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
        first = next(iter(message.splitlines()), "")
        parts.append(f"{who}: {first}\n{text.rstrip()}")
    return "\n\n".join(parts)
