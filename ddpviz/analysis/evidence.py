"""What findings are drawn from: the tables and records of one step or of all, read once."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pandas as pd

from ddpviz.analysis.buckets import bucket_table
from ddpviz.analysis.calls import Arrivals, arrivals, calls
from ddpviz.analysis.constructions import Construction, Place, constructions, place_of
from ddpviz.analysis.exposed import KINDS as EXPOSED_KINDS
from ddpviz.analysis.exposed import exposed, on_stream
from ddpviz.analysis.plans import PlanIndex, plan_index
from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import StepIndex, listed
from ddpviz.events import Cause, Failure, Kind

_KINDS = (Kind.STEP, *EXPOSED_KINDS)
#: Causes of broadcasts that a forward waits for.
_IN_FORWARD = (Cause.BUFFERS, Cause.REBUILD_ORDER)


@dataclasses.dataclass(frozen=True)
class Evidence:
    """What is known of some steps, or of one.

    ``buckets``: rows of :func:`buckets`; ``calls``: of :func:`calls`; ``broadcasts``,
    ``arrivals``: those of buffers and of a rebuild's bucket order, and who came last; ``records``:
    STEP and what exposed communication is told from; ``failures``: each with where it is told.
    """

    source: Source
    buckets: pd.DataFrame
    calls: np.ndarray
    broadcasts: np.ndarray
    arrivals: Arrivals
    records: np.ndarray
    plans: PlanIndex
    constructions: list[Construction]
    failures: list[tuple[Failure, Place]]

    @functools.cached_property
    def _rows(self) -> dict[str, StepIndex]:
        names = ("buckets", "calls", "broadcasts", "records")
        return {name: StepIndex(getattr(self, name)) for name in names}

    def of(self, step: int) -> Evidence:
        """Of one step only; of a construction (step -1, -2, …) what was recorded in it."""
        rows = {name: index.rows(max(step, -1)) for name, index in self._rows.items()}
        calls = self.calls[rows.pop("calls")]
        if step < 0:  # what happened outside of steps is no construction's, but for its calls
            built = self.construction(step)
            calls = calls[:0] if built is None else calls[built.holds(calls)]
            rows = {name: positions[:0] for name, positions in rows.items()}
        return dataclasses.replace(
            self,
            buckets=self.buckets.iloc[rows["buckets"]],
            calls=calls,
            broadcasts=self.broadcasts[rows["broadcasts"]],
            arrivals=self.arrivals.take(rows["broadcasts"]),
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
        found: np.ndarray = spans[~np.isin(spans[["rank", "step"]], unseen[["rank", "step"]])]
        return found

    def of_kind(self, kind: Kind) -> np.ndarray:
        """Records of a kind."""
        found: np.ndarray = self.records[self.records["kind"] == kind]
        return found


def gather(source: Source, step: int | None = None) -> Evidence:
    """The evidence for one step or construction, or for all of them."""
    recorded = None if step is None else max(step, -1)
    found = calls(source, recorded)
    broadcast = found[np.isin(found["cause"], _IN_FORWARD)]
    built = constructions(source)
    placed = [(note, place_of(source, note, built)) for note in source.notes(Failure)]
    return Evidence(
        source,
        bucket_table(source, recorded),
        found,
        broadcast,
        arrivals(source, broadcast, found, step is None),
        source.records(kinds=_KINDS, steps=listed(recorded)),
        plan_index(source),
        built,
        [(note, place) for note, place in placed if place is not None],
    )
