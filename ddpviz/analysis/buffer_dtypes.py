"""What the sync of buffers moved per dtype, how long that took, and how long the rank waited."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ddpviz.analysis.calls import calls
from ddpviz.analysis.communication import enqueued
from ddpviz.analysis.intervals import union_ns
from ddpviz.analysis.naming import label_texts
from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import check_step, listed, row_type, rows, sorted_rows, table
from ddpviz.events import Cause, Kind

_SCHEMA = {
    "step": "int64",
    "iteration": "int64",
    "rank": "int64",
    "module": "int64",
    "op": "str",
    "dtype": "str",
    "collectives": "int64",
    "bytes": "int64",
    "time_ms": "float64",
    "waited_ms": "float64",
}
_ROW = row_type(_SCHEMA)
_OF = ("step", "iteration", "rank", "module")


def buffer_dtypes(source: Source, step: int | None = None) -> pd.DataFrame:
    """One row per forward, rank and dtype whose buffers were sent in it, by op (a hook's own may be
    others than broadcasts).

    ``bytes``: of all its ``collectives``; ``time_ms``: at least one of them was in flight;
    ``waited_ms``: the part of it in which DDP was in its sync of buffers, so that the rank could do
    nothing else: that is on the critical path. NaN where a completion is not known or tells only
    of the enqueueing (CUDA), ``waited_ms`` also where the sync itself was not recorded.
    Raises ValueError for a step that was not recorded.
    """
    check_step(source, step)
    return table(_SCHEMA, buffer_dtype_rows(source, step, calls(source, step)))


def buffer_dtype_rows(source: Source, step: int | None, found: np.ndarray) -> np.ndarray:
    """The rows of :func:`buffer_dtypes`. ``found``: :func:`calls` of the same step."""
    sent = found[found["cause"] == Cause.BUFFERS]
    synced = source.records(kinds=Kind.BUFFER_SYNC, steps=listed(step))
    texts, position = label_texts(source, sent)
    within = _sync_of(synced, sent)
    outside = within < 0
    window = synced[within] if len(synced) else np.zeros(len(sent), synced.dtype)
    of = {name: np.where(outside, sent[name], window[name]) for name in _OF}
    keys = np.stack([*of.values(), position], axis=1).astype(np.int64).reshape(-1, len(_OF) + 1)
    _, first, group = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    group, count = group.reshape(-1), len(first)

    begin_ns, end_ns = sent["begin_ns"], sent["end_ns"]
    unseen = (end_ns == 0) | enqueued(sent)
    outside |= (window["end_ns"] == 0) | (window["clock"] != sent["clock"])
    waited_ns = union_ns(
        group,
        np.maximum(begin_ns, window["begin_ns"]),
        np.minimum(end_ns, window["end_ns"]),
        count,
    )
    time_ns = union_ns(group, begin_ns, end_ns, count)
    for values, unknown in ((time_ns, unseen), (waited_ns, unseen | outside)):
        values[np.unique(group[unknown])] = np.nan
    op, _, dtype = np.array([text.partition(" ") for text in texts], object).reshape(-1, 3).T
    made = rows(
        _ROW,
        {
            **{name: values[first] for name, values in of.items()},
            "op": op[position[first]],
            "dtype": dtype[position[first]],
            "collectives": np.bincount(group, minlength=count),
            "bytes": np.bincount(group, sent["bytes"], count).astype(np.int64),
            "time_ms": time_ns / 1e6,
            "waited_ms": waited_ns / 1e6,
        },
    )
    return sorted_rows(made, *_OF)


def _sync_of(synced: np.ndarray, sent: np.ndarray) -> np.ndarray:
    """Position of the sync on its rank that each collective began in, -1 for none. By time: what a
    buffer hook sends is no module's."""
    found = np.full(len(sent), -1, np.int64)
    for rank in np.unique(sent["rank"]):
        mine = np.flatnonzero(synced["rank"] == rank)
        mine = mine[np.argsort(synced["begin_ns"][mine], kind="stable")]
        here = np.flatnonzero(sent["rank"] == rank)
        at = np.searchsorted(synced["begin_ns"][mine], sent["begin_ns"][here], side="right") - 1
        here, at = here[at >= 0], mine[at[at >= 0]]
        ends_ns = synced["end_ns"][at]
        inside = (sent["begin_ns"][here] <= ends_ns) | (ends_ns == 0)
        found[here[inside]] = at[inside]
    return found
