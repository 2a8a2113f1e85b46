"""Every training step of every rank: where its time went, what it moved."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ddpviz.analysis.buffers import buffers, forward_of
from ddpviz.analysis.calls import calls, of_buckets
from ddpviz.analysis.intervals import union_ns
from ddpviz.analysis.overlap import first_launches_ns
from ddpviz.analysis.plans import plan_index
from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import find, listed, pick, run_keys, table
from ddpviz.events import Cause, Kind

_SCHEMA = {
    "step": "int64",
    "rank": "int64",
    "begin_ns": "int64",
    "step_ms": "float64",
    "forward_ms": "float64",
    "backward_ms": "float64",
    "optimizer_ms": "float64",
    "hidden_communication_ms": "float64",
    "exposed_communication_ms": "float64",
    "buffer_broadcasts": "int64",
    "buffer_bytes": "int64",
    "buckets": "int64",
    "bucket_bytes": "int64",
    "plan_version": "int64",
}
_KINDS = (
    Kind.STEP,
    Kind.FORWARD,
    Kind.BUFFER_SYNC,
    Kind.BACKWARD,
    Kind.FINALIZE,
    Kind.OPTIMIZER,
)


def steps(source: Source, step: int | None = None) -> pd.DataFrame:
    """One row per step and rank.

    ``begin_ns``: epoch; of a step without an end, of its first record. ``step_ms``: NaN for a step
    that never ended. ``forward_ms``, ``backward_ms``, ``optimizer_ms``: sums over the step (buffer
    sync is part of forward, finalize of backward); NaN if the step never ended and has none.
    ``hidden_communication_ms``: from each backward's first launch to its finalize;
    ``exposed_communication_ms``: in finalize or in a forward's buffer sync; time covered twice (two
    DDP modules) counts once; NaN if buckets were launched that no finalize ended.
    ``buffer_broadcasts``, ``buffer_bytes``: collectives of buffer syncs; ``buckets``,
    ``bucket_bytes``: launched, over all iterations; ``plan_version``: the highest in use, -1 if
    none is known.
    """
    records = source.records(kinds=_KINDS, steps=listed(step))
    found = calls(source, step)
    records, found = records[records["step"] >= 0], found[found["step"] >= 0]
    where = np.concatenate([_keys(records), _keys(found)])
    begins_ns = np.concatenate([records["begin_ns"], found["begin_ns"]])
    keys, inverse = np.unique(where, return_inverse=True)
    begin_ns = np.full(len(keys), np.iinfo(np.int64).max)
    np.minimum.at(begin_ns, inverse, begins_ns)

    of_kind = {kind: records[records["kind"] == kind] for kind in _KINDS}
    whole = of_kind[Kind.STEP]
    at = find(keys, _keys(whole))
    begin_ns[at] = whole["begin_ns"]
    step_ms = np.full(len(keys), np.nan)
    step_ms[at] = (whole["end_ns"] - whole["begin_ns"]) / 1e6
    finalize, finalized = of_kind[Kind.FINALIZE], find(keys, _keys(of_kind[Kind.FINALIZE]))
    exposed_ms, hidden_ms = _communication_ms(source, step, keys, of_kind, found)
    unknown = np.isnan(step_ms) & (np.bincount(finalized, minlength=len(keys)) == 0)
    in_bucket = found[found["cause"] == Cause.BUCKET]
    open_runs = ~np.isin(run_keys(in_bucket), run_keys(finalize))
    unknown[find(keys, _keys(in_bucket[open_runs]))] = True
    exposed_ms[unknown] = hidden_ms[unknown] = np.nan

    broadcasts, buffer_bytes = _buffer_sums(source, step, keys)
    launched, bucket_bytes = _bucket_sums(source, keys, found)
    return table(
        _SCHEMA,
        {
            "step": keys >> 16,
            "rank": keys & 0xFFFF,
            "begin_ns": begin_ns,
            "step_ms": step_ms,
            "forward_ms": _sum_ms(keys, of_kind[Kind.FORWARD], step_ms),
            "backward_ms": _sum_ms(keys, of_kind[Kind.BACKWARD], step_ms),
            "optimizer_ms": _sum_ms(keys, of_kind[Kind.OPTIMIZER], step_ms),
            "hidden_communication_ms": hidden_ms,
            "exposed_communication_ms": exposed_ms,
            "buffer_broadcasts": broadcasts,
            "buffer_bytes": buffer_bytes,
            "buckets": launched,
            "bucket_bytes": bucket_bytes,
            "plan_version": _plan_versions(source, keys, of_kind[Kind.FORWARD], found),
        },
    )


def _keys(records: np.ndarray) -> np.ndarray:
    keys: np.ndarray = (records["step"].astype(np.int64) << 16) | records["rank"]
    return keys


def _sum_ms(keys: np.ndarray, records: np.ndarray, step_ms: np.ndarray) -> np.ndarray:
    at = find(keys, _keys(records))
    total = np.bincount(at, (records["end_ns"] - records["begin_ns"]) / 1e6, len(keys))
    none = np.bincount(at, minlength=len(keys)) == 0
    return np.where(none & np.isnan(step_ms), np.nan, total)


def _communication_ms(
    source: Source,
    step: int | None,
    keys: np.ndarray,
    of_kind: dict[Kind, np.ndarray],
    found: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Exposed and hidden communication of each step and rank."""
    finalize, synced, forward = (
        of_kind[kind] for kind in (Kind.FINALIZE, Kind.BUFFER_SYNC, Kind.FORWARD)
    )
    forward = forward[np.lexsort((forward["begin_ns"], run_keys(forward)))]
    synced = synced[forward_of(forward, synced) >= 0]
    count, of_finalize = len(keys), find(keys, _keys(finalize))
    begin_ns, end_ns = finalize["begin_ns"], finalize["end_ns"]
    first_ns = first_launches_ns(source, run_keys(finalize), step, found)
    first_ns = np.where(first_ns == 0, begin_ns, np.minimum(first_ns, begin_ns))
    after_backward_ns = union_ns(of_finalize, begin_ns, end_ns, count)
    hidden_ns = union_ns(of_finalize, first_ns, end_ns, count) - after_backward_ns
    exposed_ns = union_ns(
        np.concatenate([of_finalize, find(keys, _keys(synced))]),
        np.concatenate([begin_ns, synced["begin_ns"]]),
        np.concatenate([end_ns, synced["end_ns"]]),
        count,
    )
    return exposed_ns / 1e6, hidden_ns / 1e6


def _buffer_sums(
    source: Source, step: int | None, keys: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    forwards = buffers(source, step)
    forwards = forwards[forwards["step"] >= 0]
    at = find(keys, (forwards["step"].to_numpy() << 16) | forwards["rank"].to_numpy())
    broadcasts = np.bincount(at, forwards["broadcasts"], len(keys))
    nbytes = np.bincount(at, forwards["bytes"], len(keys))
    return broadcasts.astype(np.int64), nbytes.astype(np.int64)


def _bucket_sums(
    source: Source, keys: np.ndarray, found: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Launched buckets and their bytes: by the plan, without one what was sent."""
    launched = of_buckets(found)
    runs, run = np.unique(run_keys(launched), return_inverse=True)
    _, first = np.unique((run << 31) | launched["index"], return_index=True)
    launched, run = launched[first], run[first]
    index = plan_index(source)
    place = index.bucket(index.at(runs)[run], launched["index"].astype(np.int64))
    nbytes = np.where(place >= 0, pick(index.bucket_bytes, place, 0), launched["bytes"])
    at = find(keys, _keys(launched))
    return np.bincount(at, minlength=len(keys)), np.bincount(at, nbytes, len(keys)).astype(np.int64)


def _plan_versions(
    source: Source, keys: np.ndarray, forward: np.ndarray, found: np.ndarray
) -> np.ndarray:
    used = np.concatenate([forward, of_buckets(found)])
    runs, run = np.unique(run_keys(used), return_inverse=True)
    index = plan_index(source)
    versions = np.full(len(keys), -1, np.int64)
    np.maximum.at(versions, find(keys, _keys(used)), index.version(index.at(runs))[run])
    return versions
