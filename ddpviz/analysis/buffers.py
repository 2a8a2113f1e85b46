"""Did a forward broadcast the module's buffers, and what did that move and cost."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ddpviz.analysis.calls import calls
from ddpviz.analysis.communication import enqueued
from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import check_step, listed, ordered, run_keys, since_ms, table
from ddpviz.events import Cause, Flag, Kind

_SCHEMA = {
    "step": "int64",
    "iteration": "int64",
    "rank": "int64",
    "module": "int64",
    "fired": "bool",
    "broadcasts": "int64",
    "bytes": "int64",
    "sync_ms": "float64",
    "no_sync": "bool",
    "no_grad": "bool",
}


def buffers(source: Source, step: int | None = None) -> pd.DataFrame:
    """One row per forward of a DDP module and rank.

    ``fired``: DDP synchronized the buffers in this forward; ``broadcasts``, ``bytes``: the
    collectives that took (none where a buffer hook replaces them); ``sync_ms``: time in it, 0
    where it did not fire, NaN where the host only enqueued it (CUDA); ``no_sync``, ``no_grad``:
    how this forward was called, which decides about the next one. What a joined rank shadows
    belongs to no forward and is left out. Raises ValueError for a step that was not recorded.
    """
    check_step(source, step)
    steps = listed(step)
    forward = source.records(kinds=Kind.FORWARD, steps=steps)
    forward = forward[np.lexsort((forward["begin_ns"], run_keys(forward)))]
    synced = source.records(kinds=Kind.BUFFER_SYNC, steps=steps)
    broadcast = calls(source, step)
    broadcast = broadcast[broadcast["cause"] == Cause.BUFFERS]
    count = len(forward)
    of_sync, of_broadcast = forward_of(forward, synced), forward_of(forward, broadcast)
    synced, of_sync = synced[of_sync >= 0], of_sync[of_sync >= 0]
    broadcast, of_broadcast = broadcast[of_broadcast >= 0], of_broadcast[of_broadcast >= 0]
    nbytes = broadcast["bytes"]
    lengths_ms = since_ms(synced["begin_ns"], synced["end_ns"])
    sync_ms = np.bincount(of_sync, lengths_ms, count).astype(np.float64)
    sync_ms[of_broadcast[enqueued(broadcast)]] = np.nan
    made = table(
        _SCHEMA,
        {
            **{name: forward[name] for name in ("step", "iteration", "rank", "module")},
            "fired": np.bincount(of_sync, minlength=count) > 0,
            "broadcasts": np.bincount(of_broadcast, minlength=count),
            "bytes": np.bincount(of_broadcast, nbytes, count).astype(np.int64),
            "sync_ms": sync_ms,
            "no_sync": (forward["flags"] & Flag.NO_SYNC) != 0,
            "no_grad": (forward["flags"] & Flag.NO_GRAD) != 0,
        },
    )
    return ordered(made, "step", "iteration", "rank", "module")


def forward_of(forward: np.ndarray, records: np.ndarray) -> np.ndarray:
    """Position of the forward that each record began in, -1 for none.

    ``forward``: sorted by run and begin. The run alone would not do: a rank that has joined goes
    on in its last iteration.
    """
    if not len(forward) or not len(records):
        return np.full(len(records), -1, np.int64)
    # The last forward that began before the record, by (run, begin): both sorted together.
    both = np.concatenate([forward, records])
    order = np.lexsort((np.arange(len(both)), both["begin_ns"], run_keys(both)))
    latest = np.maximum.accumulate(np.where(order < len(forward), order, -1))
    found = np.empty(len(both), np.int64)
    found[order] = latest
    found = found[len(forward) :]
    at = np.maximum(found, 0)
    inside = (
        (found >= 0)
        & (run_keys(forward)[at] == run_keys(records))
        & ((records["begin_ns"] <= forward["end_ns"][at]) | (forward["end_ns"][at] == 0))
    )
    return np.where(inside, found, -1)
