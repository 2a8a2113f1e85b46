"""From the end of one step to the end of the next: a step with what a rank did before it."""

from __future__ import annotations

import numpy as np

from ddpviz.analysis.constructions import KINDS
from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import find, stacked
from ddpviz.events import Kind, Process


def periods_ms(source: Source, whole: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Per (step << 16 | rank) of ``keys``; ``whole``: STEP records of the steps among them.

    NaN for a step that never ended or whose predecessor is not known, and where the rank began
    again or made a DDP module between the two: that is no training.
    """
    asked = np.unique(whole["step"])
    before = source.records(kinds=Kind.STEP, steps=np.setdiff1d(asked - 1, asked).tolist())
    every = stacked(before, whole)
    every = every[every["end_ns"] > 0]
    of, at = np.unique(_keys(every), return_index=True)
    ends_ns = every["end_ns"][at]
    here, previous = find(of, keys), find(of, keys - (1 << 16))
    known = (here >= 0) & (previous >= 0)
    rank = (keys & 0xFFFF)[known]
    begin_ns, end_ns = ends_ns[previous[known]], ends_ns[here[known]]
    lengths_ms = (end_ns - begin_ns) / 1e6
    made = source.records(kinds=KINDS, steps=[-1])
    for maker, at_ns in (
        *zip(made["rank"].tolist(), made["begin_ns"].tolist(), strict=True),
        *((note.rank, note.started_ns) for note in source.notes(Process)),
    ):
        lengths_ms[(rank == maker) & (begin_ns < at_ns) & (at_ns < end_ns)] = np.nan
    found = np.full(len(keys), np.nan)
    found[known] = lengths_ms
    return found


def _keys(records: np.ndarray) -> np.ndarray:
    keys: np.ndarray = (records["step"].astype(np.int64) << 16) | records["rank"]
    return keys
