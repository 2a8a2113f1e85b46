"""Did a forward broadcast the module's buffers, and what did that move and cost."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ddpviz.analysis.calls import calls
from ddpviz.analysis.communication import enqueued
from ddpviz.analysis.conditions import CONDITIONS, conditions
from ddpviz.analysis.naming import label_texts
from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import (
    check_step,
    listed,
    row_type,
    rows,
    run_keys,
    since_ms,
    sorted_rows,
    table,
)
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
_ROW = row_type(_SCHEMA)
_DECIDED = row_type(_SCHEMA | CONDITIONS)
_OP = "broadcast"
_ORDER = ("step", "iteration", "rank", "module")


def buffers(source: Source, step: int | None = None) -> pd.DataFrame:
    """One row per forward of a DDP module and rank.

    ``fired``: DDP synchronized the buffers in this forward; ``broadcasts``, ``bytes``: the
    collectives that took (none where a buffer hook replaces them); ``sync_ms``: time in it, 0
    where it did not fire, NaN where the host only enqueued it (CUDA); ``no_sync``, ``no_grad``:
    how this forward was called, which decides about the next one. What a joined rank shadows
    belongs to no forward and is left out. The other columns: what decided about it, see
    :mod:`ddpviz.analysis.conditions`. Raises ValueError for a step that was not recorded.
    """
    check_step(source, step)
    found = buffer_rows(source, step, calls(source, step))
    return buffers_table(decided_rows(source, step, found))


def buffers_table(found: np.ndarray) -> pd.DataFrame:
    """Rows of :func:`decided_rows` as the table of :func:`buffers`."""
    return table(_SCHEMA | CONDITIONS, found)


def decided_rows(source: Source, step: int | None, found: np.ndarray) -> np.ndarray:
    """Rows of :func:`buffer_rows` of a step, with what decided about them."""
    forward = sorted_rows(_forwards(source, step), *_ORDER)
    decided = conditions(source, forward, found["fired"], found["bytes"])
    return rows(_DECIDED, {name: found[name] for name in _SCHEMA} | decided)


def _forwards(source: Source, step: int | None) -> np.ndarray:
    forward = source.records(kinds=Kind.FORWARD, steps=listed(step))
    in_order: np.ndarray = forward[np.lexsort((forward["begin_ns"], run_keys(forward)))]
    return in_order


def buffer_rows(source: Source, step: int | None, found: np.ndarray) -> np.ndarray:
    """The rows of :func:`buffers`. ``found``: :func:`calls` of the same step."""
    forward = _forwards(source, step)
    synced = source.records(kinds=Kind.BUFFER_SYNC, steps=listed(step))
    broadcast = found[found["cause"] == Cause.BUFFERS]
    # A buffer hook's own collectives on DDP's group are no broadcasts of DDP's.
    texts, position = label_texts(source, broadcast)
    broadcast = broadcast[np.array([text.startswith(_OP) for text in texts], bool)[position]]
    count = len(forward)
    of_sync, of_broadcast = forward_of(forward, synced), forward_of(forward, broadcast)
    synced, of_sync = synced[of_sync >= 0], of_sync[of_sync >= 0]
    broadcast, of_broadcast = broadcast[of_broadcast >= 0], of_broadcast[of_broadcast >= 0]
    nbytes = broadcast["bytes"]
    lengths_ms = since_ms(synced["begin_ns"], synced["end_ns"])
    sync_ms = np.bincount(of_sync, lengths_ms, count).astype(np.float64)
    sync_ms[of_broadcast[enqueued(broadcast)]] = np.nan
    made = rows(
        _ROW,
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
    return sorted_rows(made, *_ORDER)


def forward_of(forward: np.ndarray, records: np.ndarray) -> np.ndarray:
    """Position of the forward that each record began in, -1 for none.

    ``forward``: sorted by run and begin. The run alone would not do: a rank that has joined goes
    on in its last iteration.
    """
    if not len(forward) or not len(records):
        return np.full(len(records), -1, np.int64)
    # The last forward that began before the record, by (run, begin): both sorted together.
    of_forward, of_record = run_keys(forward), run_keys(records)
    begin_ns = np.concatenate([forward["begin_ns"], records["begin_ns"]])
    order = np.lexsort((begin_ns, np.concatenate([of_forward, of_record])))
    latest = np.maximum.accumulate(np.where(order < len(forward), order, -1))
    found = np.empty(len(order), np.int64)
    found[order] = latest
    found = found[len(forward) :]
    at = np.maximum(found, 0)
    inside = (
        (found >= 0)
        & (of_forward[at] == of_record)
        & ((records["begin_ns"] <= forward["end_ns"][at]) | (forward["end_ns"][at] == 0))
    )
    return np.where(inside, found, -1)
