"""A recorder's training steps: where each begins and ends, and what follows one of them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from ddpviz import events
from ddpviz.events import NO_GROUP, NO_MODULE, Flag, Kind
from ddpviz.probe.frames import Walker

if TYPE_CHECKING:
    from ddpviz.probe.recorder import Recorder
    from ddpviz.probe.state import ModuleState

_STEP, _OPTIMIZER = int(Kind.STEP), int(Kind.OPTIMIZER)


class Steps:
    """From the first forward with gradients to the end of the optimizer's step, unless
    :meth:`explicit` says where."""

    def __init__(self, recorder: Recorder):
        self._recorder = recorder
        #: Of the last step that began, -1 before the first.
        self.index = -1
        #: When the backward ended that reduced the open step's last gradients, 0 for none yet.
        self.reduced_ns = 0
        self._begin_ns = 0
        self._explicit = False
        self._walker: Walker | None = None

    @property
    def current(self) -> int:
        """The open step, -1 outside any."""
        return self.index if self._begin_ns else -1

    @contextlib.contextmanager
    def explicit(self) -> Iterator[int]:
        """One step, whatever optimizers do in it."""
        self.abandon()
        self._explicit = True
        self._begin(time.time_ns())
        try:
            yield self.index
        finally:
            self._explicit = False
            self.end(time.time_ns())

    def forward_begins(self, state: ModuleState, begin_ns: int) -> None:
        """A DDP forward starts a step where none is open, or where its gradients are synced."""
        if torch.is_grad_enabled():  # an evaluation belongs to no training step
            if state.synced_in_step and not self._explicit:
                self.abandon()
            if self._begin_ns == 0:
                self._begin(begin_ns)
        state.iteration += 1

    def optimizer_stepped(self, begin_ns: int, label: str) -> None:
        """The optimizer's step is over; so is the training step."""
        recorder = self._recorder
        end_ns, step = recorder.now(), self.current
        rows = [self._row(_OPTIMIZER, begin_ns, end_ns, step, -1, recorder.label(label), 0)]
        if not self._explicit:
            rows += self._ended(end_ns)
        recorder.write_rows(*rows)

    def end(self, end_ns: int) -> None:
        """Close the open step, if there is one."""
        self._recorder.write_rows(*self._ended(end_ns))

    def abandon(self) -> None:
        """Close a step that no optimizer ended: where its last gradients were reduced, which is
        derived. One that has none was not ended, as by an exception: it has no record.
        """
        if self.reduced_ns:
            self._recorder.write_rows(*self._ended(self.reduced_ns, int(Flag.DERIVED)))
        elif self._begin_ns:
            self._ended(time.time_ns())

    def walk_next(self) -> None:
        """Note which functions of torch the next step that begins really runs (:class:`Walk`).

        It takes that step on its own thread a few milliseconds more. Where another profiler
        follows that thread there is no walk, and an :class:`Unavailable` note says why.
        """
        self._walker = Walker(self._recorder.originals())

    def _begin(self, begin_ns: int) -> None:
        recorder = self._recorder
        self.index += 1
        recorder.fingerprints.step_begins(self.index)
        self._begin_ns, self.reduced_ns = begin_ns, 0
        if recorder.device_times is not None:
            recorder.device_times.step_begins()
        recorder.stalls.thread = threading.get_ident()
        if self._walker is not None:
            self._walker.begin()

    def _ended(self, end_ns: int, flags: int = 0) -> list[tuple[int, ...]]:
        """The open step's record, if there is one; it is open no more."""
        recorder = self._recorder
        begin_ns, self._begin_ns, self.reduced_ns = self._begin_ns, 0, 0
        for state in recorder.modules.states():
            state.synced_in_step = False
        if not begin_ns:
            return []
        self._end_walk(end_ns)
        if recorder.fingerprints.due:
            recorder.fingerprints.step_ended()
        return [self._row(_STEP, begin_ns, end_ns, self.index, self.index, 0, flags)]

    def _end_walk(self, end_ns: int) -> None:
        recorder, walker = self._recorder, self._walker
        if walker is None or not walker.begun:
            return
        self._walker = None
        frames, now_ns = walker.end(end_ns), time.time_ns()
        module = min((state.id for state in recorder.modules.states()), default=NO_MODULE)
        if frames:
            recorder.note(events.Walk(module, self.index, now_ns, frames))
        if walker.missing:
            recorder.note(events.Unavailable(module, "walk", now_ns, walker.missing))
            recorder.say(f"the walk is not available here, because {walker.missing}")

    def _row(
        self, kind: int, begin_ns: int, end_ns: int, step: int, index: int, label: int, flags: int
    ) -> tuple[int, ...]:
        return (
            begin_ns, end_ns, 0, step, -1, index, -1, label,
            self._recorder.rank, flags, kind, 0, NO_MODULE, NO_GROUP, 0,
        )  # fmt: skip
