"""What a rank's costs are told from."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pandas as pd

from ddpviz import analysis
from ddpviz.events import Kind
from ddpviz.explain.story.waits import Wait, in_phase, waits
from ddpviz.traces.importing import Imported
from ddpviz.traces.runs import Run
from ddpviz.traces.shares import Share, covered, merged
from ddpviz.traces.skew import Skew, arrivals

#: The first steps pay for first allocations and the rebuild.
WARM = 2


@dataclasses.dataclass(frozen=True)
class Facts:
    """Times in ms, medians over ``steps``. ``waited``: for collectives, in all steps of the trace.
    ``gaps_ms``: by rank, between the optimizer's end and the next forward, without collectives."""

    run: Run
    steps: list[int]
    table: pd.DataFrame
    tables: pd.DataFrame
    step_ms: float
    skews: list[Skew]
    share: Share
    imported: Imported
    waited: list[Wait]
    gaps_ms: dict[int, float]

    def median(self, column: str, rank: int | None = None) -> float:
        """Of a column of the steps, of this rank or of another."""
        table = self.table
        if rank is not None:
            table = self.tables[self.tables["rank"] == rank]
            table = table[table["step"].isin(self.steps)]
        return float(table[column].median()) if len(table) else math.nan

    def a_step_ms(self, of_step: dict[int, float], where_any: bool = False) -> float:
        """The median over the steps of what each of them has, in ns; a step without is 0, or,
        ``where_any``, not counted."""
        found = [of_step.get(one, 0.0) for one in self.steps if one in of_step or not where_any]
        return float(np.median(found or [0.0])) / 1e6


def facts(imported: Imported, run: Run, skews: list[Skew], share: Share, step: int | None) -> Facts:
    """Raises ValueError for a step that the rank doesn't have."""
    tables = analysis.steps(imported.recording)
    table = tables[tables["rank"] == run.rank]
    if step is not None:
        if step not in set(table["step"]):
            known = sorted(set(table["step"]))
            raise ValueError(
                f"found no step {step} of rank {run.rank} in the trace, expected one from "
                f"{known[0]} to {known[-1]}"
                if known
                else "found no step in the trace"
            )
        table = table[table["step"] == step]
    else:
        table = table[table["step"] != run.phases.cut]
        if len(table) > 2 * WARM:
            table = table.iloc[WARM:]
    steps = table["step"].tolist()
    return Facts(
        run=run,
        steps=steps,
        table=table,
        tables=tables,
        step_ms=float(table["step_ms"].median()),
        skews=skews,
        share=share,
        imported=imported,
        waited=_waits(imported, run),
        gaps_ms={one.rank: _gap_ms(imported, one, tables, steps) for one in imported.runs},
    )


def parts_ms(here: Facts, rank: int) -> dict[str, float]:
    """What a rank did itself in a step, part by part, without standing still for collectives."""
    run = next(one for one in here.imported.runs if one.rank == rank)
    waited = here.waited if run is here.run else _waits(here.imported, run)
    return {
        "between its steps": here.gaps_ms[rank],
        "in its forward": here.median("forward_ms", rank)
        - here.a_step_ms(in_phase(waited, backward=False)),
        "in its backward": here.median("backward_ms", rank)
        - here.a_step_ms(in_phase(waited, backward=True)),
        "in its optimizer": here.median("optimizer_ms", rank),
    }


def _waits(imported: Imported, run: Run) -> list[Wait]:
    arrived = arrivals(imported.runs, imported.clocks, run)
    return waits(run, _finalized_ns(imported, run), arrived)


def _finalized_ns(imported: Imported, run: Run) -> dict[int, int]:
    """By iteration, when the last gradient had been computed, on the trace's own clock."""
    moved_ns = next(one.moved_ns for one in imported.clocks if one.rank == run.rank)
    found = imported.recording.records(kinds=Kind.FINALIZE, ranks=run.rank)
    return {int(one["iteration"]): int(one["begin_ns"]) + moved_ns for one in found}


def _gap_ms(imported: Imported, run: Run, tables: pd.DataFrame, steps: list[int]) -> float:
    """The median of what is between a step and the one before, without collectives."""
    moved_ns = next(one.moved_ns for one in imported.clocks if one.rank == run.rank)
    mine = tables[(tables["rank"] == run.rank) & tables["step"].isin(steps)]
    calls = [one.collective for one in run.collectives if one.iteration < 0]
    sent = merged(
        np.array(
            [(one.launch_ns, max(one.end_ns, one.launched_ns)) for one in calls], np.int64
        ).reshape(-1, 2)
    )
    found = []
    for row in mine.itertuples():
        if math.isfinite(row.period_ms):
            end_ns = row.begin_ns + moved_ns
            begin_ns = end_ns - round((row.period_ms - row.step_ms) * 1e6)
            inside = np.clip(sent, begin_ns, max(begin_ns, end_ns))
            found.append(max(end_ns - begin_ns - covered(inside), 0) / 1e6)
    return float(np.median(found)) if found else math.nan
