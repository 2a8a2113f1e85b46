"""Exposed communication: when a rank's training thread waited for collectives.

Counted is what is known to block it. Not known is that of collectives of the user's own (launched
with ``async_op=True`` or not, a record does not say) and of Join's notifications: not counted.
"""

from __future__ import annotations

import numpy as np

from ddpviz.analysis.buffers import forward_of
from ddpviz.analysis.communication import enqueued
from ddpviz.analysis.ends import OF_BACKWARD
from ddpviz.analysis.tables import among, find, pick, run_keys, segments, stacked
from ddpviz.events import RECORD, Cause, Flag, Kind

#: Kinds of records that exposed communication is told from, beside collectives.
KINDS = (Kind.FORWARD, Kind.BUFFER_SYNC, Kind.REBUILD, Kind.COMM_HOOK, Kind.FINALIZE)
#: Collectives that the training thread waits for, sooner or later.
WAITED_FOR = (*OF_BACKWARD, Cause.BUFFERS, Cause.REBUILD_ORDER, Cause.SYNC_BATCH_NORM)
#: Those that it waits for where it launches them, in no span of their own.
_AT_ONCE = (Cause.REBUILD_ORDER, Cause.SYNC_BATCH_NORM)


def exposed(records: np.ndarray, found: np.ndarray) -> np.ndarray:
    """The spans, a RECORD each; they may overlap (two DDP modules). ``end_ns`` is 0 if unknown.

    FINALIZE: waits for the buckets and copies them back. BUFFER_SYNC: of a forward. Of kind
    COLLECTIVE_DONE, by ``cause``: a rebuild's bucket order and SyncBatchNorm from launch to
    completion; BUCKET while the comm hook ran that launched it. ``records``: of :data:`KINDS` at
    least; ``found``: :func:`ddpviz.analysis.calls.calls`.
    """
    of_kind = {kind: records[records["kind"] == kind] for kind in KINDS}
    forward, synced = of_kind[Kind.FORWARD], of_kind[Kind.BUFFER_SYNC]
    forward = forward[np.lexsort((forward["begin_ns"], run_keys(forward)))]
    at_once = found[among(found["cause"], *_AT_ONCE)].copy()
    at_once["kind"] = Kind.COLLECTIVE_DONE
    return stacked(
        of_kind[Kind.FINALIZE],
        synced[forward_of(forward, synced) >= 0],
        at_once,
        hook_waits(of_kind[Kind.COMM_HOOK], found),
    )


def hook_waits(hooks: np.ndarray, found: np.ndarray) -> np.ndarray:
    """The part of each hook's own collectives in which the hook ran: no backward computes then.

    Next to nothing for a hook that returns a future at once.
    """
    mine = found[(found["cause"] == Cause.BUCKET) & ((found["flags"] & Flag.FROM_HOOK) != 0)]
    if not len(hooks) or not len(mine):
        return mine[:0]
    keys = _bucket_keys(stacked(hooks, mine))
    order = np.argsort(keys[: len(hooks)], kind="stable")
    unique, first, _ = segments(keys[: len(hooks)][order])
    at = find(unique, keys[len(hooks) :])
    end_ns = pick(hooks["end_ns"][order][first], at, 0)
    waits = np.zeros(len(mine), RECORD)
    waits[:] = mine
    # One that never completed was not waited for any longer than the hook ran.
    completed_ns = np.where(mine["end_ns"] > 0, mine["end_ns"], end_ns)
    waits["kind"], waits["end_ns"] = Kind.COLLECTIVE_DONE, np.minimum(completed_ns, end_ns)
    return waits[(waits["index"] >= 0) & (waits["end_ns"] > waits["begin_ns"])]


def _bucket_keys(records: np.ndarray) -> np.ndarray:
    """Position of each (run, bucket) among those of all the records."""
    runs = np.unique(run_keys(records), return_inverse=True)[1].astype(np.int64)
    return (runs << 31) | np.maximum(records["index"], 0)


def on_stream(found: np.ndarray) -> np.ndarray:
    """Calls that are waited for on a CUDA stream: how long cannot be seen from host clocks."""
    mine: np.ndarray = among(found["cause"], *WAITED_FOR) & enqueued(found)
    return mine
