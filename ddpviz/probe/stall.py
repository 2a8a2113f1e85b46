"""The stall watch: what a rank is in, and at which line, when it is in it for long.

It runs on the recorder's own thread, which training does not help: a collective that another rank
never enters holds the training thread in C++, without the GIL. Torch-free.
"""

from __future__ import annotations

import linecache
import sys
import threading
import time
from types import FrameType
from typing import TYPE_CHECKING

from ddpviz.events import StackLine, Stall

if TYPE_CHECKING:
    from ddpviz.probe.recorder import Recorder

#: Longer than the steps of almost any job, shorter than a person's patience.
STALL_S = 5.0
_DEEPEST = 40
_LONGEST_LINE = 160


class StallWatch:
    """Of one recorder. ``limit_s``: how long a collective, or silence, may last; 0 for ever.

    Silence is no fault by itself: only who reads all ranks knows whether one is waited for.
    """

    def __init__(self, recorder: Recorder, limit_s: float) -> None:
        self._recorder = recorder
        self.limit_ns = check_limit(limit_s)
        #: The thread that trains: the one that began a step last.
        self.thread = threading.main_thread().ident or 0
        self._written = -1
        self._heard_ns = 0
        self._told: tuple[int, int] = (0, 0)  # since when, and how long it was when last noted
        self._at: StackLine | None = None  # the line that was noted last

    def look(self, at_once: bool = False) -> None:
        """Note a stall where there is one; again when it has lasted twice as long, or when the
        thread is at another line than a while ago. ``at_once``: whatever it is, however short."""
        if not self.limit_ns and not at_once:
            return
        recorder, now_ns = self._recorder, time.time_ns()
        written = recorder.written
        if written != self._written:
            self._written, self._heard_ns = written, now_ns
        group, sequence, since_ns = recorder.collectives.oldest
        if not since_ns:
            since_ns = self._heard_ns
        lasted_ns = now_ns - since_ns
        told_since_ns, told_ns = self._told
        again = told_since_ns == since_ns
        due_ns = told_ns + max(self.limit_ns, told_ns // 4) if again else self.limit_ns
        if lasted_ns < due_ns and not at_once:
            return
        stack = stack_of(self.thread)
        at = stack[0] if stack else None
        if again and at == self._at and lasted_ns < 2 * told_ns and not at_once:
            return
        self._told, self._at = (since_ns, lasted_ns), at
        recorder.note(
            Stall(
                recorder.rank,
                recorder.steps.current,
                now_ns,
                since_ns,
                group,
                sequence,
                recorder.collectives.on_device(group, sequence),
                stack,
            )
        )


def check_limit(limit_s: float) -> int:
    """The limit in nanoseconds. Raises ValueError for what is no number of seconds."""
    if isinstance(limit_s, bool) or not isinstance(limit_s, (int, float)) or not 0 <= limit_s < 1e9:
        raise ValueError(f"found stall_s {limit_s!r}, expected seconds, or 0 to watch for no stall")
    return int(limit_s * 1e9)


def stack_of(thread: int) -> tuple[StackLine, ...]:
    """Where a thread is, the innermost call first; empty for a thread that is gone."""
    frame: FrameType | None = sys._current_frames().get(thread)
    found: list[StackLine] = []
    while frame is not None and len(found) < _DEEPEST:
        code, line = frame.f_code, frame.f_lineno or 0
        text = linecache.getline(code.co_filename, line, frame.f_globals).strip()
        name = getattr(code, "co_qualname", code.co_name)
        found.append(StackLine(code.co_filename, line, name, text[:_LONGEST_LINE]))
        frame = frame.f_back
    return tuple(found)
