"""Configurations side by side: medians with the band of their noise, and who is told apart."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from ddpviz.analysis.compile_table import compile_table
from ddpviz.analysis.source import Source
from ddpviz.analysis.steps import steps
from ddpviz.analysis.tables import table
from ddpviz.events import Kind, Module
from ddpviz.recording.trials import Trial

_SCHEMA = {
    "configuration": "str",
    "place": "Int64",
    "step_ms": "float64",
    "step_ms_low": "float64",
    "step_ms_high": "float64",
    "hidden_communication_ms": "float64",
    "exposed_communication_ms": "float64",
    "collectives": "float64",
    "bytes": "float64",
    "graphs": "int64",
    "compile_ms": "float64",
    "memory_bytes": "int64",
    "gradient_difference": "float64",
    "buffers_synced": "boolean",
    "rounds": "int64",
    "steps": "int64",
    "refused": "str",
}

#: Two-sided 1 % quantiles of Student's t with 1, 2, … degrees of freedom.
_HUNDREDTH = (
    *(63.66, 9.92, 5.84, 4.60, 4.03, 3.71, 3.50, 3.36, 3.25, 3.17),
    *(3.11, 3.05, 3.01, 2.98, 2.95, 2.92, 2.90, 2.88, 2.86, 2.85),
)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """``table``: a row per configuration, in the order they were run. ``verdict``: one sentence.

    ``step_ms``: median over all measured steps of the slowest rank's; ``step_ms_low``, ``_high``:
    the lowest and highest median of a round. Two configurations are told apart where their rounds'
    medians are further from each other than the noise between rounds makes two equal ones in one
    of a hundred cases (a t-test on logarithms, with one spread for all configurations); ``place``
    counts from 1, and is the same for those that are not, <NA> with fewer than two rounds. Per
    step and rank: ``hidden_communication_ms`` and ``exposed_communication_ms`` (medians, NaN where
    not known), ``collectives`` and ``bytes``
    (means). ``graphs``: compiled for it, subgraphs in place of what was split, and those of a
    backward that compiled autograd traced; ``compile_ms``: of
    one load and rank, the most. ``memory_bytes``: the most of any rank (GPU: peak of tensors; CPU:
    resident memory of a process that has run configurations before it). ``gradient_difference``:
    of the first step's gradients against those of the configuration called "eager", else of the
    first one, as a part of their norm; the third step's too where one has PowerSGD, which changes
    none before.
    ``buffers_synced``: whether buffers were sent in measured steps, <NA> where the model has none.
    """

    table: pd.DataFrame
    verdict: str

    def __str__(self) -> str:
        shown = self.table.drop(columns=["rounds", "steps"]).dropna(axis="columns", how="all")
        return f"{self.verdict}\n\n{shown.to_string(index=False)}"

    def _repr_html_(self) -> str:
        return f"<p>{escape(self.verdict)}</p>{self.table.to_html(index=False)}"


def comparison(source: Source, trials: Sequence[Trial]) -> Comparison:
    """What was recorded of trials, by configuration."""
    every = steps(source)
    calls = source.records(kinds=Kind.COLLECTIVE_LAUNCHED)
    compiled = compile_table(source)
    names = list(dict.fromkeys(trial.name for trial in trials))
    rows = [
        _row(source, every, calls, compiled, [trial for trial in trials if trial.name == name])
        for name in names
    ]
    for row, place in zip(rows, _places(rows), strict=True):
        row["place"] = place
    made = table(_SCHEMA, {name: [row[name] for row in rows] for name in _SCHEMA})
    return Comparison(made, verdict(rows))


def _row(
    source: Source,
    every: pd.DataFrame,
    calls: np.ndarray,
    compiled: pd.DataFrame,
    trials: list[Trial],
) -> dict[str, Any]:
    ran = [trial for trial in trials if not trial.refused]
    refused = "; ".join(dict.fromkeys(trial.refused for trial in trials if trial.refused))
    rounds = [every[every["step"].between(trial.measured, trial.last)] for trial in ran]
    slowest = [one.groupby("step")["step_ms"].max() for one in rounds]
    medians = [float(one.median()) for one in slowest]
    measured = pd.concat(rounds) if rounds else every.iloc[:0]
    mine = calls[np.isin(calls["step"], measured["step"].unique())] if len(measured) else calls[:0]
    per_step = max(1, len(measured))
    modules, apart = _modules(source, ran), [trial.difference for trial in ran]
    pairs = zip(compiled["rank"], compiled["module"], strict=True)
    of = compiled[np.array([pair in modules for pair in pairs], bool)]
    whole = of["subgraphs"].where(of["subgraphs"] > 0, of["graphs"]) + of["backward_graphs"]
    return {
        "configuration": trials[0].name,
        "step_ms": float(pd.concat(slowest).median()) if slowest else np.nan,
        "medians": medians,
        "step_ms_low": min(medians, default=np.nan),
        "step_ms_high": max(medians, default=np.nan),
        "hidden_communication_ms": float(measured["hidden_communication_ms"].median()),
        "exposed_communication_ms": float(measured["exposed_communication_ms"].median()),
        "collectives": len(mine) / per_step,
        "bytes": float(mine["bytes"].sum()) / per_step,
        "graphs": int(whole.max()) if len(whole) else 0,
        "compile_ms": float(of["compile_ms"].max()) if len(of) else 0.0,
        "memory_bytes": max((trial.memory_bytes for trial in ran), default=0),
        "gradient_difference": max((one for one in apart if one == one), default=np.nan),
        "buffers_synced": _synced(source, measured, modules),
        "rounds": len(ran),
        "steps": int(measured["step"].nunique()),
        "refused": refused,
    }


def _modules(source: Source, ran: list[Trial]) -> set[tuple[int, int]]:
    """(rank, module) of what the trials' steps went through."""
    found: set[tuple[int, int]] = set()
    for trial in ran:
        forward = source.records(kinds=Kind.FORWARD, steps=range(trial.first, trial.last + 1))
        pairs = zip(forward["rank"].tolist(), forward["module"].tolist(), strict=True)
        found |= {(rank, module) for rank, module in pairs}
    return found


def _synced(source: Source, measured: pd.DataFrame, modules: set[tuple[int, int]]) -> int:
    buffers = [
        len(note.buffers)
        for rank in source.ranks
        for note in source.notes(Module, rank=rank)
        if (rank, note.id) in modules
    ]
    return int(measured["buffer_broadcasts"].any()) if any(buffers) else -1


def _places(rows: list[dict[str, Any]]) -> list[int]:
    """Places from 1; the same for those not told apart, one after another. -1 for none."""
    known = [row for row in rows if row["rounds"] > 1]
    places, place = {}, 0
    before: dict[str, Any] | None = None
    for number, row in enumerate(sorted(known, key=lambda row: float(row["step_ms"])), 1):
        if before is None or told_apart(before["medians"], row["medians"], _spread(known)):
            place = number
        before = row
        places[id(row)] = place
    return [places.get(id(row), -1) for row in rows]


@dataclasses.dataclass(frozen=True)
class Spread:
    """Of medians of rounds around their configuration's: ``deviation`` of their logarithms, from
    ``freedom`` rounds more than there are configurations."""

    deviation: float
    freedom: int


def _spread(rows: list[dict[str, Any]]) -> Spread:
    apart = [np.log(row["medians"]) - np.log(row["medians"]).mean() for row in rows]
    freedom = sum(len(one) - 1 for one in apart)
    return Spread(float(np.sqrt(sum(np.square(one).sum() for one in apart) / freedom)), freedom)


def told_apart(mine: Sequence[float], other: Sequence[float], spread: Spread) -> bool:
    """Whether the noise between rounds makes as large a difference of two equal configurations in
    less than one of a hundred cases."""
    limit = _HUNDREDTH[min(spread.freedom, len(_HUNDREDTH)) - 1]
    error = spread.deviation * np.sqrt(1 / len(mine) + 1 / len(other))
    return bool(abs(np.log(mine).mean() - np.log(other).mean()) > limit * error)


def verdict(rows: list[dict[str, Any]]) -> str:
    """Who is faster than whom, as far as the noise lets that be said."""
    placed = [(place, row) for place, row in zip(_places(rows), rows, strict=True) if place > 0]
    if len(placed) < 2:
        return "nothing is ranked: it takes two configurations, each run in two rounds at least"
    groups = [
        sorted((row for _, row in ones), key=lambda row: float(row["step_ms"]))
        for _, ones in itertools.groupby(sorted(placed, key=lambda one: one[0]), lambda one: one[0])
    ]
    told = ", then ".join(" and ".join(_told(row) for row in group) for group in groups)
    if len(groups) == 1:
        return f"not told apart by these rounds: {told}"
    tied = any(len(group) > 1 for group in groups)
    return f"from the fastest: {told}" + (
        "; those joined by and are not told apart by these rounds" if tied else ""
    )


def _told(row: dict[str, Any]) -> str:
    low, high = row["step_ms_low"], row["step_ms_high"]
    return f"{row['configuration']} {row['step_ms']:.3g} ms ({low:.3g} to {high:.3g})"
