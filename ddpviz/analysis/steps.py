"""Every training step of every rank: where its time went, what it moved."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ddpviz.analysis.buffers import buffer_rows
from ddpviz.analysis.bursts import bursts
from ddpviz.analysis.calls import calls, of_buckets
from ddpviz.analysis.communication import in_flight, reduced_unseen, unseen_modules
from ddpviz.analysis.exposed import KINDS as EXPOSED_KINDS
from ddpviz.analysis.exposed import exposed, on_stream
from ddpviz.analysis.intervals import union_ns
from ddpviz.analysis.period import periods_ms
from ddpviz.analysis.plans import PlanIndex, plan_index
from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import (
    SHARED_ID,
    check_step,
    find,
    listed,
    pick,
    row_type,
    rows,
    run_keys,
    since_ms,
    stacked,
    table,
)
from ddpviz.events import Cause, Flag, Kind

_SCHEMA = {
    "step": "int64",
    "rank": "int64",
    "period_ms": "float64",
    "step_ms": "float64",
    "exposed_communication_ms": "float64",
    "hidden_communication_ms": "float64",
    "forward_ms": "float64",
    "backward_ms": "float64",
    "optimizer_ms": "float64",
    "buckets": "int64",
    "bucket_bytes": "int64",
    "buffer_broadcasts": "int64",
    "buffer_bytes": "int64",
    "plan_version": "int64",
    "enqueued": "bool",
    "derived": "bool",
    "burst": "str",
    "begin_ns": "int64",
}
_ROW = row_type(_SCHEMA)
_KINDS = (Kind.STEP, Kind.BACKWARD, Kind.OPTIMIZER, *EXPOSED_KINDS)


def steps(source: Source, step: int | None = None) -> pd.DataFrame:
    """One row per step and rank.

    A step is from the first forward with gradients to the end of the optimizer's step (or an
    explicit ``step()`` block): what a rank does before that forward, such as loading its batch, is
    in no step. ``step_ms``: its length, NaN for a step that never ended. ``period_ms``: from the
    end of the step before to its end, so with all that; NaN where that step is not known, or a
    process or a DDP module was made in between. ``forward_ms``, ``backward_ms``,
    ``optimizer_ms``: sums over the step (buffer sync is part of forward, finalize of backward);
    NaN if the step never ended and has none.

    ``exposed_communication_ms``: how long the training thread waited for collectives, see
    :func:`ddpviz.analysis.exposed.exposed`: in finalize for the buckets, which are copied back
    there too; in a forward for buffers, for the rebuilt buckets' order, for SyncBatchNorm; in a
    comm hook for the hook's own. Not counted, because whether it waited is not recorded: the
    user's own collectives and Join's.
    ``hidden_communication_ms``: how long at least one of a backward's collectives was in flight
    (launched, not yet complete) before finalize began, and the thread did not wait; NaN where a
    completion is not known. Time covered twice (two DDP modules) counts once; the two do not sum
    to the time in flight, because copying back is none. Both are NaN if buckets were launched that
    no finalize ended, or a module's buckets cannot be seen.

    ``buckets``, ``bucket_bytes``: launched, over all iterations; ``buffer_broadcasts``,
    ``buffer_bytes``: collectives of buffer syncs; ``plan_version``: the highest in use, -1 if none
    is known. ``enqueued``: the step's collectives were enqueued on a CUDA stream, which host
    clocks do not see into: hidden and exposed communication are NaN, and the other times are the
    host's, when it enqueued the work. ``derived``: no optimizer was seen to step, so the step ends
    where its last gradients were reduced. ``burst``: where all gradients of a backward came at
    once, as one compiled graph's backward is one node of autograd, the sentence that says so and
    why, else "" (:mod:`ddpviz.analysis.bursts`). With ``optimize_ddp="python_reducer"`` there are
    no buckets, and neither hidden nor exposed communication is known. ``begin_ns``: epoch; of a
    step without an end, of its first record. Raises ValueError for a step that was not recorded.
    """
    check_step(source, step)
    found = calls(source, step)
    return steps_table(step_rows(source, step, found, buffer_rows(source, step, found)))


def steps_table(found: np.ndarray) -> pd.DataFrame:
    """Rows of :func:`step_rows` as the table of :func:`steps`."""
    return table(_SCHEMA, found)


def step_rows(
    source: Source, step: int | None, found: np.ndarray, forwards: np.ndarray
) -> np.ndarray:
    """The rows of :func:`steps`. ``found``, ``forwards``: :func:`calls` and :func:`buffer_rows`
    of the same step."""
    records = source.records(kinds=_KINDS, steps=listed(step))
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
    step_ms[at] = _lengths_ms(whole)
    exposed_ms, hidden_ms, streamed = _communication_ms(keys, records, found, step_ms)
    forward = of_kind[Kind.FORWARD]
    unseen = forward[reduced_unseen(forward, unseen_modules(source))]
    exposed_ms[find(keys, _keys(unseen))] = hidden_ms[find(keys, _keys(unseen))] = np.nan

    index = plan_index(source)
    broadcasts, buffer_bytes = _buffer_sums(forwards, keys)
    launched, bucket_bytes = _bucket_sums(index, keys, found)
    return rows(
        _ROW,
        {
            "step": keys >> 16,
            "rank": keys & 0xFFFF,
            "period_ms": periods_ms(source, whole, keys),
            "step_ms": step_ms,
            "forward_ms": _sum_ms(keys, forward, step_ms),
            "backward_ms": _sum_ms(keys, of_kind[Kind.BACKWARD], step_ms),
            "optimizer_ms": _sum_ms(keys, of_kind[Kind.OPTIMIZER], step_ms),
            "hidden_communication_ms": hidden_ms,
            "exposed_communication_ms": exposed_ms,
            "buffer_broadcasts": broadcasts,
            "buffer_bytes": buffer_bytes,
            "buckets": launched,
            "bucket_bytes": bucket_bytes,
            "plan_version": _plan_versions(index, keys, forward, found),
            "enqueued": streamed,
            "derived": _derived(whole, keys),
            "burst": _bursts(source, step, keys),
            "begin_ns": begin_ns,
        },
    )


def _keys(records: np.ndarray) -> np.ndarray:
    keys: np.ndarray = (records["step"].astype(np.int64) << 16) | records["rank"]
    return keys


def _lengths_ms(records: np.ndarray) -> np.ndarray:
    """NaN where the end is not known."""
    return since_ms(records["begin_ns"], records["end_ns"])


def _sum_ms(keys: np.ndarray, records: np.ndarray, step_ms: np.ndarray) -> np.ndarray:
    at = find(keys, _keys(records))
    total = np.bincount(at, _lengths_ms(records), len(keys))
    none = np.bincount(at, minlength=len(keys)) == 0
    return np.where(none & np.isnan(step_ms), np.nan, total)


def _communication_ms(
    keys: np.ndarray, records: np.ndarray, found: np.ndarray, step_ms: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Exposed and hidden communication of each step and rank, and whether it was only enqueued."""
    finalize, waits = records[records["kind"] == Kind.FINALIZE], exposed(records, found)
    flight = in_flight(found, finalize)
    count, of_wait, of_call = len(keys), find(keys, _keys(waits)), find(keys, _keys(flight.calls))
    waiting = of_wait, waits["begin_ns"], waits["end_ns"]
    flights = of_call, flight.begin_ns, flight.end_ns
    exposed_ns = _covered_ns(count, waiting)
    hidden_ns = _covered_ns(count, flights, waiting) - exposed_ns

    of_finalize = find(keys, _keys(finalize))
    unknown = np.isnan(step_ms) & (np.bincount(of_finalize, minlength=count) == 0)
    unknown[of_wait[waits["end_ns"] == 0]] = True
    unknown[of_call[(flight.finalize < 0) & (flight.calls["cause"] == Cause.BUCKET)]] = True
    streamed = np.zeros(count, bool)
    streamed[find(keys, _keys(found[on_stream(found)]))] = True
    unseen = np.zeros(count, bool)
    unseen[of_call[flight.unseen | (flight.calls["module"] >= SHARED_ID)]] = True
    # Whether a compiled backward waited for its own all-reduces is not recorded.
    unknown[find(keys, _keys(found[found["cause"] == Cause.PYTHON_REDUCER]))] = True
    unknown |= streamed
    return (
        np.where(unknown, np.nan, exposed_ns / 1e6),
        np.where(unknown | unseen, np.nan, hidden_ns / 1e6),
        streamed,
    )


def _covered_ns(count: int, *spans: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
    """Time covered per group, by spans of one sort or another (groups, begins, ends)."""
    groups, begin_ns, end_ns = (np.concatenate(parts) for parts in zip(*spans, strict=True))
    return union_ns(groups, begin_ns, end_ns, count)


def _derived(whole: np.ndarray, keys: np.ndarray) -> np.ndarray:
    found = np.zeros(len(keys), bool)
    found[find(keys, _keys(whole[(whole["flags"] & Flag.DERIVED) != 0]))] = True
    return found


def _bursts(source: Source, step: int | None, keys: np.ndarray) -> np.ndarray:
    """The sentence of each step and rank."""
    told = np.full(len(keys), "", object)
    for one in bursts(source, step):
        for at in find(keys, np.array([(one.step << 16) | one.rank])):
            told[at] = one.sentence() if at >= 0 else told[at]
    return told


def _buffer_sums(forwards: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    forwards = forwards[forwards["step"] >= 0]
    at = find(keys, _keys(forwards))
    broadcasts = np.bincount(at, forwards["broadcasts"], len(keys))
    nbytes = np.bincount(at, forwards["bytes"], len(keys))
    return broadcasts.astype(np.int64), nbytes.astype(np.int64)


def _bucket_sums(
    index: PlanIndex, keys: np.ndarray, found: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Launched buckets and their bytes: by the plan, without one what was sent."""
    launched = of_buckets(found)
    runs, run = np.unique(run_keys(launched), return_inverse=True)
    # With the step: several modules that share an id have the same iterations in other steps.
    _, place = np.unique(find(keys, _keys(launched)) * len(runs) + run, return_inverse=True)
    _, first = np.unique((place << 31) | launched["index"], return_index=True)
    launched, run = launched[first], run[first]
    place = index.bucket(index.at(runs)[run], launched["index"].astype(np.int64))
    nbytes = np.where(place >= 0, pick(index.bucket_bytes, place, 0), launched["bytes"])
    at = find(keys, _keys(launched))
    return np.bincount(at, minlength=len(keys)), np.bincount(at, nbytes, len(keys)).astype(np.int64)


def _plan_versions(
    index: PlanIndex, keys: np.ndarray, forward: np.ndarray, found: np.ndarray
) -> np.ndarray:
    used = stacked(forward, of_buckets(found))
    runs, run = np.unique(run_keys(used), return_inverse=True)
    versions = np.full(len(keys), -1, np.int64)
    np.maximum.at(versions, find(keys, _keys(used)), index.version(index.at(runs))[run])
    return versions
