"""Are the replicas equal? What DDP promises, checked by fingerprints, over the sampled steps."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ddpviz.analysis import replicas
from ddpviz.analysis.traced import untold
from ddpviz.views import lane_canvas, live_canvas
from ddpviz.views.columns import Columns, Row, as_rows
from ddpviz.views.lane_canvas import QUIET, Stack
from ddpviz.views.live import LiveFigure, LiveView, Moment, Picture
from ddpviz.views.live_canvas import Kind
from ddpviz.views.live_steps import step_axis
from ddpviz.views.sampled import HOW_TO, Sampled, sampled
from ddpviz.views.text import count, names

_KINDS = {
    "equal": Kind("equal on all ranks", QUIET),
    "different": Kind("different, although DDP promises otherwise", "#000000", rare=True),
    "drift": Kind(
        "different, as buffers may be between two syncs", "#CC79A7", hatched=True, rare=True
    ),
    "alone": Kind("known of one rank only", QUIET, hatched=True, rare=True),
}
_PITCH_PX = 26.0
#: What the table calls it → what it is in a sentence, and in the margin; in the figure's order.
_WHATS = {
    "parameters": ("parameters", "parameters"),
    "gradients": ("reduced gradients", "gradients"),
    "buffers after": ("buffers after their sync", "buffers synced"),
    "buffers before": ("buffers before their sync", "buffers before"),
    "buffers": ("buffers after the step", "buffers at end"),
}


def draw() -> LiveFigure:
    """The figure without steps."""
    drawn = lane_canvas.lane_figure(_KINDS, x_label="sampled step", ink=("different",))
    drawn.canvas.sources["bars"].data = live_canvas.bars([])
    step_axis(drawn.canvas.plot)
    return drawn.live()


def picture(moment: Moment) -> Picture:
    """A lane for each kind of tensors, and in it a cell per sampled step."""
    if moment.step is None:
        return _nothing(moment, moment.hint)
    complete = moment.history.steps["step"].to_numpy()
    # Of a step that goes on, one rank may have told more than another.
    source = sampled(moment.source, moment.sampled_steps, complete.max() if len(complete) else None)
    table = replicas(source)
    if table.empty:
        if why := untold(moment.source, "whether the replicas are equal"):
            return _nothing(moment, why)
        title = "whether the replicas are equal is not known: no fingerprints were taken"
        return _nothing(moment, title, (HOW_TO,))
    cells = _cells(as_rows(table))
    steps = np.array(source.steps)
    half = 0.45 * float(np.median(np.diff(steps))) if len(steps) > 1 else 0.45
    stack = Stack(_PITCH_PX)
    bars: list[Row] = []
    for what, rows in _by_what(cells).items():
        lane = stack.add(_WHATS[what][1])
        for row in rows:
            left, right = row["step"] - half, row["step"] + half
            told = {"head": _head(row), "time": names(row["names"]), "detail": _detail(row)}
            bar = lane_canvas.bar(lane, _kind(row), left, right, **told)
            bars.append({**bar, "step": row["step"]})  # a tap shows that step
    return Picture(
        step=int(steps[-1]),
        title=_title(cells, source),
        sources=_sources(bars),
        x=(float(steps[0]) - 2 * half, float(steps[-1]) + 2 * half),
        y=(stack.height_px, 0.0),
        height_px=round(stack.height_px),
        y_labels=stack.labels,
        facts=_facts(cells, source),
    )


def _cells(table: list[Row]) -> list[Row]:
    """One row per step and what: all modules and forwards of the step together."""
    found: dict[tuple[int, str], list[Row]] = {}
    for row in table:
        found.setdefault((row["step"], row["what"]), []).append(row)
    return [
        {
            "step": step,
            "what": what,
            "promised": rows[0]["promised"],
            "ranks": max(row["ranks"] for row in rows),
            "known": any(row["equal"] is not None for row in rows),
            "equal": all(row["equal"] is not False for row in rows),
            "names": _once((row["module"], name) for row in rows for name in row["names"]),
            "different_ranks": sorted({r for row in rows for r in row["different_ranks"]}),
            "since": min((row["since_step"] for row in rows if row["names"]), default=step),
            "nonfinite": max(row["nonfinite"] for row in rows),
        }
        for (step, what), rows in sorted(found.items())
    ]


def _once(named: Iterable[tuple[int, str]]) -> list[str]:
    """Names of tensors, each once: a step may have several forwards."""
    return [name for _, name in dict.fromkeys(named)]


def _by_what(cells: list[Row]) -> dict[str, list[Row]]:
    """In the figure's order, those that there are."""
    found: dict[str, list[Row]] = {what: [] for what in _WHATS}
    for cell in cells:
        found[cell["what"]].append(cell)
    return {what: rows for what, rows in found.items() if rows}


def _kind(row: Row) -> str:
    if not row["known"]:
        return "alone"
    if row["equal"]:
        return "equal"
    return "different" if row["promised"] else "drift"


def _head(row: Row) -> str:
    what = f"step {row['step']}, {_WHATS[row['what']][0]}"
    if not row["known"]:
        return f"{what}: one rank alone"
    if row["equal"]:
        return f"{what}: equal on {count(row['ranks'], 'rank')}"
    many = len(row["names"])
    return f"{what}: {many} differ{'s' if many == 1 else ''}, on {_ranks(row)}"


def _detail(row: Row) -> str:
    if not row["nonfinite"]:
        return ""
    return f"{count(row['nonfinite'], 'element')} NaN or infinite"


def _ranks(row: Row) -> str:
    ranks = [str(rank) for rank in row["different_ranks"]]
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {names(ranks, 4)}"


def _title(cells: list[Row], source: Sampled) -> str:
    last = source.steps[-1]
    promised = [cell for cell in cells if cell["promised"]]
    broken = [cell for cell in promised if not cell["equal"]]
    still = [cell for cell in broken if cell["step"] == last]
    if still:
        # Parameters first: they are what is wrong for good.
        cell = min(still, key=lambda cell: list(_WHATS).index(cell["what"]))
        return f"{_broken(cell, source)}: {names(cell['names'], 3)} on {_ranks(cell)}"
    bad = max((cell["nonfinite"] for cell in cells if cell["step"] == last), default=0)
    wrong = f", but {count(bad, 'element')} NaN or infinite" if bad else ""
    if broken:
        named = broken[-1]["what"]
        steps = [cell["step"] for cell in broken if cell["what"] == named]
        when = f"step {steps[0]}"
        if len(steps) > 1:
            when = f"{len(steps)} sampled steps from {steps[0]} to {steps[-1]}"
        return f"{_WHATS[named][0]} differed in {when}, and are equal now{wrong}"
    here = {cell["what"] for cell in promised}
    what = " and ".join(w for w in ("parameters", "gradients") if w in here) or "synced buffers"
    if not any(cell["known"] for cell in promised):
        return f"whether {what} are equal is not known: fingerprints of one rank alone are here"
    ranks = count(max(cell["ranks"] for cell in promised), "rank")
    sampled_steps = count(len(source.steps), "sampled step")
    where = sampled_steps if len(source.steps) == 1 else f"all {sampled_steps}"
    if not source.complete:
        where = f"the last {sampled_steps}"
    return f"{what} are equal on {ranks} in {where}{wrong}"


def _broken(row: Row, source: Sampled) -> str:
    return f"{_WHATS[row['what']][0]} differ between ranks since step {_since(row, source)}"


def _since(row: Row, source: Sampled) -> str:
    """ "60 or before" where older sampled steps are not looked at."""
    before = "" if source.complete or row["since"] > source.steps[0] else " or before"
    return f"{row['since']}{before}"


def _facts(cells: list[Row], source: Sampled) -> tuple[str, ...]:
    told = []
    newest = {what: rows[-1] for what, rows in _by_what(cells).items()}
    for row in newest.values():
        text = _head(row)
        if not row["equal"]:
            text += f": {names(row['names'])}"
            if row["promised"]:
                since = _since(row, source)
                text += f"; never equal again since step {since}"
        told.append("; ".join(part for part in (text, _detail(row)) if part))
    if "buffers" in newest:
        told.append("the buffers at the end of a step are what state_dict() of each rank gives")
    if not source.complete:
        told.append(f"older than the last {len(source.steps)} sampled steps is not shown")
    return tuple(told)


def _sources(bars: list[Row]) -> dict[str, Columns]:
    return {
        "bars": live_canvas.bars(bars),
        "marks": live_canvas.marks([]),
        "labels": lane_canvas.labels([]),
    }


def _nothing(moment: Moment, title: str, facts: tuple[str, ...] = ()) -> Picture:
    return lane_canvas.empty(title, moment.step, _sources([]), facts)


VIEW = LiveView("replicas", draw, picture)
