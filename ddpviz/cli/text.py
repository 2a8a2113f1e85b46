"""Tables as plain text; every format of the CLI stands here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ddpviz.views.text import EXPOSED, HIDDEN, ON_CUDA, SUM, count, names, size

if TYPE_CHECKING:
    import pandas as pd

#: Of a long run, this many steps are printed from each end.
_STEPS_PER_END = 12
_NOT_KNOWN = "-"

#: Heading and column of :func:`ddpviz.analysis.steps`.
_TIMES = {
    "step ms": "step_ms",
    "forward": "forward_ms",
    "backward": "backward_ms",
    "optimizer": "optimizer_ms",
    "hidden comm": "hidden_communication_ms",
    "exposed comm": "exposed_communication_ms",
}


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = ()) -> str:
    """Columns two blanks apart, right-aligned but for those numbered in ``left``."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        aligned = [
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(aligned).rstrip()

    return "\n".join([line(headings), line(["-" * width for width in widths]), *map(line, rows)])


def steps(frame: pd.DataFrame) -> str:
    """One row per step: times as the mean over ranks, counts and bytes of one rank.

    ``frame``: of :func:`ddpviz.analysis.steps`. Times in ms; a mean needs the time of every rank
    that recorded anything, else it is not known. The last row is the median over steps but for the
    first two, which pay for first allocations and the bucket rebuild.
    """
    if frame.empty:
        return "No step was recorded."
    of_steps = frame.groupby("step")
    times = of_steps[list(_TIMES.values())].mean()
    ranks = int(frame["rank"].nunique())
    times = times.where(of_steps[list(_TIMES.values())].count() == ranks)
    buffers = of_steps[["buffer_broadcasts", "buffer_bytes", "buckets", "plan_version"]].max()
    headings = ["step", *_TIMES, "broadcasts", "bytes", "buckets", "plan"]
    rows = [
        [
            str(step),
            *(_milliseconds(times.at[step, column]) for column in _TIMES.values()),
            _whole(buffers.at[step, "buffer_broadcasts"]),
            _size(buffers.at[step, "buffer_bytes"]),
            _whole(buffers.at[step, "buckets"]),
            _whole(buffers.at[step, "plan_version"]),
        ]
        for step in times.index
    ]
    if len(rows) > 2 * _STEPS_PER_END:
        rows[_STEPS_PER_END:-_STEPS_PER_END] = [["…", *[""] * (len(headings) - 1)]]
    steady = times.iloc[2:]
    if len(steady):
        medians = [_milliseconds(steady[column].median()) for column in _TIMES.values()]
        rows.append(["median", *medians, "", "", "", ""])
    title = (
        f"Steps: times in ms, mean of {count(ranks, 'rank')}; broadcasts are of buffers, per rank"
    )
    notes = [f"hidden comm   {HIDDEN}", f"exposed comm  {EXPOSED};", f"{'':14}{SUM}"]
    if frame["enqueued"].any():
        notes.append(f"note          {ON_CUDA}")
    return "\n".join([title, "", table(headings, rows), "", *notes])


def plans(frame: pd.DataFrame) -> str:
    """Every bucket plan, one after the other.

    ``frame``: of :func:`ddpviz.analysis.plans`.
    """
    if frame.empty:
        return "No bucket plan was recorded."
    several = frame["module"].nunique() > 1
    parts = []
    for (module, version), plan in frame.groupby(["module", "version"]):
        first = plan.iloc[0]
        title = f"Bucket plan {version}: {_REASONS.get(first['reason'], first['reason'])}"
        if several:
            title = f"Module {module}, {title[0].lower()}{title[1:]}"
        rows = [
            [
                _whole(row["bucket"]),
                _size(row["bytes"]),
                _size(row["limit_bytes"]),
                _whole(row["parameters"]),
                names(list(row["parameter_names"]), at_most=3),
            ]
            for row in plan.sort_values("bucket").to_dict("records")
        ]
        headings = ["bucket", "size", "closes at", "parameters", "which"]
        parts.append(f"{title}\n\n{table(headings, rows, left=[4])}")
    return "\n\n".join(parts)


_REASONS = {
    "construction": "as constructed, before the rebuild",
    "rebuild": "after the rebuild, in the order in which gradients became ready",
    "attached": "as found when recording began",
}


def _milliseconds(value: Any) -> str:
    return _NOT_KNOWN if _missing(value) else f"{value:.2f}"


def _whole(value: Any) -> str:
    return _NOT_KNOWN if _missing(value) else str(int(value))


def _size(value: Any) -> str:
    return _NOT_KNOWN if _missing(value) else size(float(value))


def _missing(value: Any) -> bool:
    import pandas as pd

    return bool(pd.isna(value))
