"""What one step is drawn from: its records, its rows of the tables, and the names of things."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ddpviz.events import RECORD, Kind, Module, Plan

if TYPE_CHECKING:
    from ddpviz.recording import Recording

#: The step number under which records of construction are kept.
CONSTRUCTION_STEP = -1


@dataclasses.dataclass(frozen=True)
class StepSource:
    """One step of all ranks.

    ``records``: numpy array of RECORD; ``buckets`` and ``collectives``: the rows of
    :func:`ddpviz.analysis.buckets` and :func:`ddpviz.analysis.collectives` of this step;
    ``plans`` by (rank, module, version); ``modules`` by (rank, module); ``finding``: the step in
    one sentence.
    """

    step: int
    records: np.ndarray
    buckets: pd.DataFrame
    collectives: pd.DataFrame
    plans: dict[tuple[int, int, int], Plan]
    modules: dict[tuple[int, int], Module]
    finding: str

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


def recorded_steps(recording: Recording) -> list[int]:
    """Steps that have records, in order; :data:`CONSTRUCTION_STEP` first where it was recorded."""
    return sorted(_by_step(recording.records()))


def read_steps(recording: Recording, steps: Iterable[int]) -> list[StepSource]:
    """The sources of these steps, in the given order. Raises ValueError for an unknown step."""
    from ddpviz.analysis import buckets, collectives
    from ddpviz.analysis.finding import finding

    by_step = _by_step(recording.records())
    bucket_rows = dict(iter(buckets(recording).groupby("step")))
    collective_rows = dict(iter(collectives(recording).groupby("step")))
    plans = {
        (rank, plan.module, plan.version): plan
        for rank in recording.ranks
        for plan in recording.notes(Plan, rank=rank)
    }
    modules = {
        (rank, module.id): module
        for rank in recording.ranks
        for module in recording.notes(Module, rank=rank)
    }
    nothing = pd.DataFrame()
    sources = []
    for step in steps:
        if step not in by_step:
            known = f"{min(by_step)} to {max(by_step)}" if by_step else "a recorded step"
            raise ValueError(f"found no step {step} in the recording, expected {known}")
        sources.append(
            StepSource(
                step=step,
                records=by_step[step],
                buckets=bucket_rows.get(step, nothing),
                collectives=collective_rows.get(step, nothing),
                plans=plans,
                modules=modules,
                finding="construction of the DDP module"
                if step == CONSTRUCTION_STEP
                else finding(recording, step),
            )
        )
    return sources


def _by_step(records: np.ndarray) -> dict[int, np.ndarray]:
    """Records by their step. Outside of steps only what construction spans is kept."""
    if records.dtype != RECORD:
        raise ValueError(f"found records of type {records.dtype}, expected ddpviz.events.RECORD")
    about_recorder = (records["kind"] >= Kind.GAP) & (records["kind"] <= Kind.FAILED)
    records = records[~about_recorder]
    records = records[np.argsort(records["step"], kind="stable")]
    if not len(records):
        return {}
    steps, firsts = np.unique(records["step"], return_index=True)
    by_step = dict(zip(steps.tolist(), np.split(records, firsts[1:]), strict=True))
    outside = by_step.pop(CONSTRUCTION_STEP, None)
    if outside is not None:
        whole = outside[outside["kind"] == Kind.CONSTRUCTION]
        if len(whole):
            during = (outside["begin_ns"] >= whole["begin_ns"].min()) & (
                outside["begin_ns"] <= whole["end_ns"].max()
            )
            by_step[CONSTRUCTION_STEP] = outside[during]
    return by_step
