"""Tables as plain text; every format of the CLI stands here."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ddpviz.views.text import (
    EXPOSED,
    HIDDEN,
    NOT_COUNTED,
    ON_CUDA,
    ONE_BUCKET,
    PERIOD,
    STEP,
    SUM,
    begins_as_one,
    brief,
    count,
    in_bursts,
    names,
    size,
)

if TYPE_CHECKING:
    import pandas as pd

    from ddpviz.analysis import Comparison

#: Of a long run, this many steps are printed from each end.
_STEPS_PER_END = 12
#: Steps that medians leave out, where there are enough.
_WARM_UP = 2
_NOT_KNOWN = "-"

#: Heading and column of :func:`ddpviz.analysis.steps`.
_TIMES = {
    "period": "period_ms",
    "step": "step_ms",
    "forward": "forward_ms",
    "backward": "backward_ms",
    "optimizer": "optimizer_ms",
    "hidden": "hidden_communication_ms",
    "exposed": "exposed_communication_ms",
}
#: Ranks differ where the highest time is more than this share and so many ms above the lowest.
_APART, _APART_MS = 0.1, 1.0
#: Of more ranks, those with the shortest and with the longest time out of any step are listed.
_MOST_RANKS = 16


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
    """A row per step over all ranks, then a row per rank over all steps.

    ``frame``: of :func:`ddpviz.analysis.steps`. Times in ms: the lowest and the highest of the
    ranks where they differ, else their mean; not known unless every rank that recorded anything
    has one. Medians are over steps but for the first two: those of a job pay for first
    allocations and the bucket rebuild, and others, as of a trace, warm up. Counts and bytes are of
    one rank.
    """
    if frame.empty:
        return "No step was recorded."
    of_steps = frame.groupby("step")
    columns = list(_TIMES.values())
    mean, low, high = (getattr(of_steps[columns], name)() for name in ("mean", "min", "max"))
    ranks = int(frame["rank"].nunique())
    known = of_steps[columns].count() == ranks
    mean, low, high = mean.where(known), low.where(known), high.where(known)
    counts = of_steps[["buckets", "plan_version", "buffer_broadcasts", "buffer_bytes"]].max()
    headings = ["#", *_TIMES, "buckets", "plan", "buffer broadcasts"]
    rows = [
        [
            str(step),
            *(_between(low.at[step, of], mean.at[step, of], high.at[step, of]) for of in columns),
            _whole(counts.at[step, "buckets"]),
            _whole(counts.at[step, "plan_version"]),
            _broadcasts(counts.at[step, "buffer_broadcasts"], counts.at[step, "buffer_bytes"]),
        ]
        for step in mean.index
    ]
    if len(rows) > 2 * _STEPS_PER_END:
        rows[_STEPS_PER_END:-_STEPS_PER_END] = [["…", *[""] * (len(headings) - 1)]]
    warm = _warm(mean.index)
    if len(mean) > 2:
        medians = [
            _between(*(of_all.iloc[warm:][of].median() for of_all in (low, mean, high)))
            for of in columns
        ]
        rows.append(["median", *medians, "", "", ""])
    differ = "; lowest–highest where ranks differ" if ranks > 1 else ""
    parts = [f"Steps of {count(ranks, 'rank')}: times in ms{differ}", table(headings, rows)]
    if ranks > 1:
        parts += ["Ranks: median times in ms", _by_rank(frame)]
    notes = {
        "step": STEP,
        "period": PERIOD,
        "hidden": f"{HIDDEN}; forward's broadcasts never are",
        "exposed": f"{EXPOSED}\n{SUM}\n{NOT_COUNTED}",
    }
    if len(mean) > 2:
        why = "which allocate and rebuild the buckets" if mean.index[0] == 0 else "which warm up"
        notes["median"] = f"without the first two steps, {why}" if warm else "of all of them"
    if bursts := in_bursts(frame):
        notes["burst"] = bursts
    if frame["enqueued"].any():
        notes["note"] = ON_CUDA
    return "\n\n".join([*parts, "\n".join(_note(name, told) for name, told in notes.items())])


def _warm(steps: Sequence[int]) -> int:
    """How many steps medians leave out. A job's first two, also of three; of steps from its middle
    the first two of many."""
    many = len(steps) > 2 if len(steps) and steps[0] == 0 else len(steps) > 2 * _WARM_UP
    return _WARM_UP if many else 0


def _by_rank(frame: pd.DataFrame) -> str:
    """A row per rank: who is slow shows in what it does between steps, as the others wait."""
    steps = sorted(frame["step"].unique())
    steady = frame[frame["step"] >= steps[min(_warm(steps), len(steps) - 1)]]
    medians = steady.assign(between=steady["period_ms"] - steady["step_ms"]).groupby("rank")[
        ["between", *_TIMES.values()]
    ]
    found = medians.median().sort_index()
    if len(found) > _MOST_RANKS:
        in_order = found["between"].sort_values().index
        found = found.loc[[*in_order[: _MOST_RANKS // 2], *in_order[-_MOST_RANKS // 2 :]]]
    rows = [
        [str(rank), *(_milliseconds(row[column]) for column in found.columns)]
        for rank, row in found.iterrows()
    ]
    return table(["rank", "between steps", *_TIMES], rows)


def _note(name: str, told: str) -> str:
    """A word and what it means, in lines that fit a terminal."""
    lines = [line for part in told.split("\n") for line in textwrap.wrap(part, 98)]
    return "\n".join(f"{name if at == 0 else '':8}  {line}" for at, line in enumerate(lines))


def _between(low: Any, mean: Any, high: Any) -> str:
    if _missing(mean) or high - low <= max(_APART_MS, _APART * high):
        return _milliseconds(mean)
    return f"{low:.1f}–{high:.1f}"


def _broadcasts(number: Any, nbytes: Any) -> str:
    if _missing(number) or not number or not nbytes:  # a trace may have no sizes
        return _whole(number)
    return f"{_whole(number)} ({_size(nbytes)})"


def plans(frame: pd.DataFrame) -> str:
    """Every bucket plan, one after the other.

    ``frame``: of :func:`ddpviz.analysis.plans`, not empty.
    """
    several = frame["module"].nunique() > 1
    parts = []
    told = False
    for (module, version), plan in frame.groupby(["module", "version"]):
        first = plan.iloc[0]
        title = f"Bucket plan {version}: {_REASONS.get(first['reason'], first['reason'])}"
        if several:
            changed = f" ({first['changed']})" if first["changed"] else ""
            title = f"Module {module}{changed}, {title[0].lower()}{title[1:]}"
        rows = [
            [
                _whole(row["bucket"]),
                _size(row["bytes"] or None),
                _size(row["limit_bytes"]),
                _whole(row["parameters"]),
                brief(names(list(row["parameter_names"]), at_most=3)),
            ]
            for row in plan.sort_values("bucket").to_dict("records")
        ]
        headings = ["bucket", "size", "closes at", "parameters", "which"]
        parts.append(f"{title}\n\n{table(headings, rows, left=[4])}")
        if begins_as_one(plan) and not told:
            told = True
            parts.append("\n".join(textwrap.wrap(f"({ONE_BUCKET})", 108)))
    return "\n\n".join(parts)


def compared(comparison: Comparison) -> str:
    """The verdict, and a row per configuration: medians per step, counts and bytes per rank."""
    headings = ["configuration", "place", *_COMPARED, "collectives", "sent", "refused"]
    rows = [
        [
            str(row["configuration"]),
            _whole(row["place"]),
            *(_milliseconds(row[column]) for column in _COMPARED.values()),
            f"{row['collectives']:.3g}",
            _size(row["bytes"]),
            str(row["refused"]),
        ]
        for row in comparison.table.to_dict("records")
    ]
    if not any(comparison.table["refused"]):
        headings, rows = headings[:-1], [row[:-1] for row in rows]
    verdict = "\n".join(textwrap.wrap(f"Compared: {comparison.verdict}", 108))
    left = [0, len(_COMPARED) + 4]
    return f"{verdict}\n\n{table(headings, rows, left)}"


#: Heading and column of :class:`ddpviz.analysis.Comparison`, in ms.
_COMPARED = {
    "step": "step_ms",
    "lowest round": "step_ms_low",
    "highest round": "step_ms_high",
    "hidden": "hidden_communication_ms",
    "exposed": "exposed_communication_ms",
}

_REASONS = {
    "construction": "as constructed, before the rebuild",
    "rebuild": "after the rebuild, in the order in which gradients became ready",
    "attached": "as found when recording began",
}


def _milliseconds(value: Any) -> str:
    return _NOT_KNOWN if _missing(value) else f"{value:.1f}"


def _whole(value: Any) -> str:
    return _NOT_KNOWN if _missing(value) else str(int(value))


def _size(value: Any) -> str:
    return _NOT_KNOWN if _missing(value) else size(float(value))


def _missing(value: Any) -> bool:
    import pandas as pd

    return bool(pd.isna(value))
