"""What DDP found out about which parameters a forward used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ddpviz.analysis.configurations import configured
from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import SHARED_ID, check_step, listed, run_keys, table
from ddpviz.events import Cause, Flag, Kind, Module, Unavailable, Unused

_SCHEMA = {
    "step": "int64",
    "iteration": "int64",
    "rank": "int64",
    "module": "int64",
    "parameter": "int64",
    "name": "str",
    "used": "boolean",
    "searched": "str",
    "sink": "bool",
}
_OFF = "no: find_unused_parameters is off"
_NO_SYNC = "no: a forward in no_sync prepares for no reduction"
_NO_GRAD = "no: a forward without gradients has no backward"
_HERE = "yes"
_COUNTED = "no: static_graph counts whose hooks come in its first backward"
_FIRST = "no: a static_graph stays as it was in its first backward"


def forward_graph(source: Source, step: int | None = None) -> pd.DataFrame:
    """One row per parameter of each forward of a DDP module.

    ``used``: whether this rank had a gradient to give, as the Reducer's map of used parameters had
    it when it was summed over ranks, so only after the backward, and with what came since the last
    reduction; <NA> where it was not searched for, or is not known. ``searched``: "yes", or why not.
    ``sink``: the forward's output went through ``_DDPSink``, which has backward begin with DDP.
    Raises ValueError for a step that was not recorded.
    """
    check_step(source, step)
    forward = source.records(kinds=Kind.FORWARD, steps=listed(step))
    forward = forward[forward["module"] < SHARED_ID]
    order = ("module", "rank", "iteration", "step")
    forward = forward[np.lexsort([forward[name] for name in order])]
    summed = source.records(kinds=Kind.COLLECTIVE_LAUNCHED)
    maps = np.unique(run_keys(summed[summed["cause"] == Cause.USED_MAP]))
    ranks = {rank: _Rank(source, rank) for rank in np.unique(forward["rank"]).tolist()}
    columns: dict[str, list[Any]] = {name: [] for name in _SCHEMA}
    for record, key in zip(forward, run_keys(forward), strict=True):
        module, of_rank = int(record["module"]), ranks[int(record["rank"])]
        names = of_rank.names.get(module, ())
        searched, unused = of_rank.found(record, bool(np.isin(key, maps)))
        used = [-1] * len(names)
        if unused is not None:
            used = [int(parameter not in unused) for parameter in range(len(names))]
        for name in ("step", "iteration", "rank", "module"):
            columns[name] += [int(record[name])] * len(names)
        columns["parameter"] += range(len(names))
        columns["name"] += names
        columns["used"] += used
        columns["searched"] += [searched] * len(names)
        columns["sink"] += [bool(record["flags"] & Flag.SINK)] * len(names)
    return table(_SCHEMA, columns)


class _Rank:
    """What a rank's notes tell."""

    def __init__(self, source: Source, rank: int) -> None:
        self._configured = configured(source, rank)
        self._unused: dict[int, list[Unused]] = {}
        for note in source.notes(Unused, rank=rank):
            self._unused.setdefault(note.module, []).append(note)
        self._unseen = {
            note.module: note.why
            for note in source.notes(Unavailable, rank=rank)
            if note.what == "unused parameters"
        }
        self.names = {
            note.id: tuple(tensor.name for tensor in note.parameters)
            for note in source.notes(Module, rank=rank)
        }

    def found(self, forward: np.void, summed: bool) -> tuple[str, frozenset[int] | None]:
        """Whether it was searched, and which were unused. ``summed``: its map was, over ranks."""
        module, flags = int(forward["module"]), int(forward["flags"])
        values = self._configured.at(module, int(forward["begin_ns"]))
        if not values:
            return "not known: its module's configuration was not recorded", None
        static = bool(values.get("static_graph"))
        if not static and not values.get("find_unused_parameters"):
            return _OFF, None
        if flags & Flag.NO_GRAD:
            return _NO_GRAD, None
        if flags & Flag.NO_SYNC and not static:
            return _NO_SYNC, None
        if module in self._unseen:
            return f"not known: {self._unseen[module]}", None
        if not static and not summed:
            return "not known: no backward has summed the map of used parameters", None
        at = int(forward["iteration"])
        before = [note for note in self._unused.get(module, []) if note.iteration <= at]
        if not before:
            return "not known: the map of used parameters was not recorded", None
        unused = frozenset(max(before, key=lambda note: note.iteration).parameters)
        if static:
            return (_COUNTED if summed else _FIRST), unused
        return _HERE, unused
