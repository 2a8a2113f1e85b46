"""What findings are drawn from: the tables and records of one step or of all, read once."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from ddpviz.analysis.buckets import bucket_rows
from ddpviz.analysis.calls import Arrivals, arrivals, calls
from ddpviz.analysis.constructions import Construction, Place, constructions, place_of
from ddpviz.analysis.exposed import KINDS as EXPOSED_KINDS
from ddpviz.analysis.exposed import exposed, on_stream
from ddpviz.analysis.plans import PlanIndex, plan_index
from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import StepIndex, listed
from ddpviz.events import Failure, Kind

_KINDS = (Kind.STEP, *EXPOSED_KINDS)


@dataclasses.dataclass(frozen=True)
class Evidence:
    """What is known of some steps, or of one.

    ``buckets``: of :func:`ddpviz.analysis.buckets.bucket_rows`; ``calls``: of :func:`calls`;
    ``arrivals``: who came last at each of them; ``records``: STEP and what exposed communication
    is told from; ``failures``: each with where it is told.
    """

    source: Source
    buckets: np.ndarray
    calls: np.ndarray
    arrivals: Arrivals
    records: np.ndarray
    plans: PlanIndex
    constructions: list[Construction]
    failures: list[tuple[Failure, Place]]

    @functools.cached_property
    def _rows(self) -> dict[str, StepIndex]:
        names = ("buckets", "calls", "records")
        return {name: StepIndex(getattr(self, name)) for name in names}

    def of(self, step: int) -> Evidence:
        """Of one step only; of a construction (step -1, -2, …) what was recorded in it."""
        rows = {name: index.rows(max(step, -1)) for name, index in self._rows.items()}
        called = rows.pop("calls")
        if step < 0:  # what happened outside of steps is no construction's, but for its calls
            built = self.construction(step)
            called = called[:0] if built is None else called[built.holds(self.calls[called])]
            rows = {name: positions[:0] for name, positions in rows.items()}
        return dataclasses.replace(
            self,
            buckets=self.buckets[rows["buckets"]],
            calls=self.calls[called],
            arrivals=self.arrivals.take(called),
            records=self.records[rows["records"]],
            failures=[(note, place) for note, place in self.failures if place.step == step],
        )

    def construction(self, step: int) -> Construction | None:
        """The construction of this number; None where there is none."""
        return self.constructions[-step - 1] if 0 < -step <= len(self.constructions) else None

    @property
    def exposed(self) -> np.ndarray:
        """Exposed communication (:func:`ddpviz.analysis.exposed.exposed`), where it is known."""
        spans = exposed(self.records, self.calls)
        unseen = self.calls[on_stream(self.calls)]
        if not len(unseen):
            return spans
        found: np.ndarray = spans[~np.isin(_step_keys(spans), _step_keys(unseen))]
        return found

    def of_kind(self, kind: Kind) -> np.ndarray:
        """Records of a kind."""
        found: np.ndarray = self.records[self.records["kind"] == kind]
        return found


def _step_keys(records: np.ndarray) -> np.ndarray:
    keys: np.ndarray = (records["step"].astype(np.int64) << 16) | records["rank"]
    return keys


def gather(source: Source, step: int | None = None) -> Evidence:
    """The evidence for one step or construction, or for all of them."""
    recorded = None if step is None else max(step, -1)
    found = calls(source, recorded)
    reached = arrivals(source, found, found, step is None)
    built = constructions(source)
    placed = [(note, place_of(source, note, built)) for note in source.notes(Failure)]
    plans = plan_index(source)
    return Evidence(
        source,
        bucket_rows(source, recorded, found, reached, plans),
        found,
        reached,
        source.records(kinds=_KINDS, steps=listed(recorded)),
        plans,
        built,
        [(note, place) for note, place in placed if place is not None],
    )
