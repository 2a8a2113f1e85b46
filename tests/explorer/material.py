"""A recording that grows, as one of a running session does."""

from __future__ import annotations

import numpy as np

from ddpviz.events import Batch, Group, Label, Module, Plan, Process
from ddpviz.recording import Recording
from tests.views.samples import STEP_NS, sample_recording

NOTES = (Process, Group, Module, Label, Plan)


class Stream:
    """Steps of a real layout, as many as wanted: those of the sample, repeated in time.

    ``recording`` has the first three steps; :meth:`steps` appends more, a batch per rank.
    """

    def __init__(self, ranks: int = 2, **sample: object) -> None:
        self._sample = sample_recording(steps=3, ranks=ranks, **sample)  # type: ignore[arg-type]
        self.recording = Recording()
        self._sequence = 0
        self._next = 3
        for rank in self._sample.ranks:
            notes = tuple(note for kind in NOTES for note in self._sample.notes(kind, rank=rank))
            self.recording.append(Batch(rank, 0, self._sample.records(ranks=rank), notes))

    def batch(self, rank: int, first: int, count: int) -> np.ndarray:
        """Records of ``count`` steps from ``first`` on."""
        template = self._sample.records(ranks=rank, steps=2)
        parts = []
        for step in range(first, first + count):
            part = template.copy()
            shift = (step - 2) * STEP_NS
            part["begin_ns"] += shift
            part["end_ns"][part["end_ns"] > 0] += shift
            part["step"] = step
            part["iteration"][part["iteration"] >= 0] = step
            part["sequence"][part["sequence"] >= 0] += (step - 2) * 100
            parts.append(part)
        return np.concatenate(parts)

    def steps(self, count: int = 1) -> int:
        """Append so many steps on every rank; the number of the last one."""
        self._sequence += 1
        for rank in self._sample.ranks:
            records = self.batch(rank, self._next, count)
            self.recording.append(Batch(rank, self._sequence, records))
        self._next += count
        return self._next - 1

    def begin(self, rank: int) -> int:
        """Append a step on one rank only, so that it is not complete; its number."""
        self._sequence += 1
        records = self.batch(rank, self._next, 1)
        self.recording.append(Batch(rank, self._sequence, records))
        return self._next
