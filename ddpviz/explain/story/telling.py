"""The story of traces: headline, what is fine, tables of ranks, and the tree of frames."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ddpviz.analysis.units import format_duration
from ddpviz.explain.story.cost import Cost, counted
from ddpviz.explain.story.costs import costs
from ddpviz.explain.story.facts import facts
from ddpviz.explain.story.fine import fine
from ddpviz.explain.story.frames import Tree, tree
from ddpviz.traces.clocks import Clock
from ddpviz.traces.importing import Imported, read
from ddpviz.traces.runs import Run
from ddpviz.traces.shares import Share, share
from ddpviz.traces.skew import Skew, skews
from ddpviz.traces.told import doubts


@dataclasses.dataclass(frozen=True)
class Story:
    """What traces tell of DDP. ``costs``: per step, the most expensive first; ``fine``: what is
    not wrong; ``shares``, ``clocks``: one per rank; ``skews``: one per collective of a step;
    ``tree``: frames of ``rank``; ``remarks``: what a reader should know; ``doubts``: why what is
    told of one rank against another may be wrong.

    ``str(story)`` is for a terminal; a notebook shows it as HTML.
    """

    title: str
    rank: int
    step_ms: float
    costs: tuple[Cost, ...]
    fine: tuple[str, ...]
    shares: tuple[Share, ...]
    clocks: tuple[Clock, ...]
    skews: tuple[Skew, ...]
    tree: Tree
    remarks: tuple[str, ...]
    doubts: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON has it; times in ms or µs as their names say."""
        from ddpviz.explain.story import as_json

        return as_json.story(self)

    def to_html(self) -> str:
        """A page of its own that works offline."""
        from ddpviz.explain.story import html

        return html.page(self)

    def _repr_html_(self) -> str:
        from ddpviz.explain.story import html

        return html.fragment(self)

    def __str__(self) -> str:
        from ddpviz.explain.story import text

        return text.story(self)


def traces(
    paths: str | Path | Sequence[str | Path], rank: int | None = None, step: int | None = None
) -> Story:
    """The story of a trace, of several, or of a directory of them: see :func:`tell`.

    Raises ValueError, too, for what can't be read as a trace.
    """
    return tell(read(paths), rank, step)


def tell(imported: Imported, rank: int | None = None, step: int | None = None) -> Story:
    """The story of imported traces, its costs and frames of one rank (the lowest) and of all
    steps, or of one. Raises ValueError for a rank or a step that they don't have."""
    runs = {run.rank: run for run in imported.runs}
    if not runs:
        raise ValueError(
            "found no profiler's rows in it, expected profiler traces: ddpviz show prints what a "
            "flight recorder's dump or an export has"
        )
    chosen = min(runs) if rank is None else rank
    if chosen not in runs:
        known = ", ".join(map(str, sorted(runs)))
        raise ValueError(f"found no rank {chosen} in the traces, expected one of: {known}")
    run = runs[chosen]
    doubted = tuple(doubts(imported.runs, imported.clocks))
    late = skews(imported.runs, imported.clocks)
    shares = tuple(share(one) for one in imported.runs)
    mine = next(one for one in shares if one.rank == chosen)
    here = facts(imported, run, late, mine, step)
    found = costs(here)
    return Story(
        title=_title(imported, run, here.step_ms, here.table),
        rank=chosen,
        step_ms=here.step_ms,
        costs=tuple(found),
        fine=tuple(fine(here, found)),
        shares=shares,
        clocks=tuple(imported.clocks),
        skews=tuple(late),
        tree=tree(run, here.steps),
        remarks=tuple(one for one in imported.recording.remarks if one not in doubted),
        doubts=doubted,
    )


def _title(imported: Imported, run: Run, step_ms: float, table: Any) -> str:
    count = len(imported.runs)
    ranks = f"{count} ranks" if count > 1 else f"rank {run.rank}"
    size = max(one.world_size for one in imported.runs)
    ranks += f" of {size}" if size > count else ""
    if not len(table):
        return f"{ranks}: no whole step"
    parts = ", ".join(
        f"{name} {format_duration(float(table[f'{name}_ms'].median()) * 1e6)}"
        for name in ("forward", "backward", "optimizer")
        if table[f"{name}_ms"].notna().any()
    )
    traced = len({it.step for it in run.phases.iterations})
    times = counted(traced, "step") if len(table) > 1 else f"step {int(table['step'].iloc[0])}"
    after = f" of steps {int(table['step'].iloc[0])} to {int(table['step'].iloc[-1])}"
    warm = (
        f" (medians{after}: the first {traced - len(table)} warm up)"
        if 1 < len(table) < traced
        else " (medians)"
        if len(table) > 1
        else ""
    )
    whose = f"rank {run.rank}'s host" if run.enqueued else f"rank {run.rank}"
    whole = (
        f"a step of {whose} takes {format_duration(step_ms * 1e6)}"
        if math.isfinite(step_ms)
        else f"no step of {whose} is whole"
    )
    return f"{ranks}, {times}: {whole}{warm}{': ' if parts else ''}{parts}"
