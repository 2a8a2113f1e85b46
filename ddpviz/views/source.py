"""What one step is drawn from: its records, its rows of the tables, and the names of things."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

import numpy as np

from ddpviz.analysis import finding
from ddpviz.analysis.collectives import collective_rows
from ddpviz.analysis.communication import enqueued
from ddpviz.analysis.constructions import Construction
from ddpviz.analysis.evidence import Evidence, gather
from ddpviz.analysis.tables import StepIndex, happened, no_step
from ddpviz.events import RECORD, Kind, Module, Plan, Process

if TYPE_CHECKING:
    from ddpviz.recording import Recording


def is_construction(step: int) -> bool:
    """Whether this is no training step but a construction: -1 is the first, -2 the second, …"""
    return step < 0


@dataclasses.dataclass(frozen=True)
class StepSource:
    """One step of all ranks, or one construction of a DDP module.

    ``records``: numpy array of RECORD; ``buckets`` and ``collectives``: of
    :func:`ddpviz.analysis.buckets.bucket_rows` and
    :func:`ddpviz.analysis.collectives.collective_rows`, where unknown times are 0;
    ``exposed``: exposed communication where it is known, of
    :func:`ddpviz.analysis.exposed.exposed`; ``plans`` by (rank, module, version); ``modules`` by
    (rank, module); ``finding``: the step in one sentence; ``hosts``: names of the hosts of all
    ranks.
    """

    step: int
    records: np.ndarray
    buckets: np.ndarray
    collectives: np.ndarray
    exposed: np.ndarray
    plans: dict[tuple[int, int, int], Plan]
    modules: dict[tuple[int, int], Module]
    finding: str
    hosts: frozenset[str]

    @functools.cached_property
    def ranks(self) -> list[int]:
        """Ranks with at least one record in this step, in order."""
        return [int(rank) for rank in np.unique(self.records["rank"])]

    @functools.cached_property
    def zero_ns(self) -> int:
        """The step's begin on the first rank; without it, the first thing that was recorded."""
        steps = self.records[self.records["kind"] == Kind.STEP]
        if len(steps):
            return int(steps["begin_ns"][np.argmin(steps["rank"])])
        return int(self.records["begin_ns"].min())

    @functools.cached_property
    def enqueuing_ranks(self) -> frozenset[int]:
        """Ranks that enqueued collectives on a CUDA stream: their times are the host's only."""
        return frozenset(self.records["rank"][enqueued(self.records)].tolist())


@dataclasses.dataclass(frozen=True)
class Run:
    """All that the steps of a recording are drawn from, read once."""

    records: np.ndarray
    evidence: Evidence
    plans: dict[tuple[int, int, int], Plan]
    modules: dict[tuple[int, int], Module]
    hosts: frozenset[str]

    @functools.cached_property
    def _rows(self) -> StepIndex:
        return StepIndex(self.records)

    @functools.cached_property
    def steps(self) -> list[int]:
        """The constructions in the order of time (-1, -2, …), then the steps with records."""
        built = [one.step for one in self.evidence.constructions]
        return built + [step for step in self._rows.steps if step >= 0]

    def construction(self, step: int) -> Construction | None:
        """The construction of this number; None for a step."""
        return self.evidence.construction(step)

    def check(self, step: int) -> None:
        """Raises ValueError for a step without records."""
        if step not in self.steps:
            trained = [known for known in self.steps if not is_construction(known)]
            raise ValueError(no_step(step, trained, len(self.steps) - len(trained)))

    def source(self, step: int) -> StepSource:
        """What this step is drawn from. Raises ValueError for one without records."""
        self.check(step)
        records = self.records[self._rows.rows(max(step, -1))]
        built = self.construction(step)
        if built is not None:
            records = records[built.holds(records)]
        here = self.evidence.of(step)
        return StepSource(
            step=step,
            records=records,
            buckets=here.buckets,
            collectives=collective_rows(self.evidence.source, here.calls),
            exposed=here.exposed,
            plans=self.plans,
            modules=self.modules,
            finding=finding(self.evidence.source, step, here),
            hosts=self.hosts,
        )


def read_run(recording: Recording) -> Run:
    """Reads a recording for its figures."""
    return Run(
        _drawn(recording.records()),
        gather(recording),
        {
            (rank, plan.module, plan.version): plan
            for rank in recording.ranks
            for plan in recording.notes(Plan, rank=rank)
        },
        {
            (rank, module.id): module
            for rank in recording.ranks
            for module in recording.notes(Module, rank=rank)
        },
        frozenset(note.hostname for note in recording.notes(Process)),
    )


def _drawn(records: np.ndarray) -> np.ndarray:
    """Records but for those that the recorder writes about itself."""
    if records.dtype != RECORD:
        raise ValueError(f"found records of type {records.dtype}, expected ddpviz.events.RECORD")
    return happened(records)
