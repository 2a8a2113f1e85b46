"""The collectives of a backward: how long they were in flight while it still computed.

Where a collective has host times on CUDA none of this can be seen: the host enqueues it and goes
on, so neither its end nor the length of finalize says when it ran. Whoever shows these numbers asks
:func:`enqueued` first.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from ddpviz.analysis.ends import OF_BACKWARD, following
from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import among, pick, run_keys
from ddpviz.events import Flag, Unavailable


@dataclasses.dataclass(frozen=True)
class InFlight:
    """Collectives of backwards, each with the finalize that waited for it.

    ``finalize``: its position, -1 where there is none (the backward did not end). ``begin_ns``,
    ``end_ns``: from the launch to the completion or to the begin of finalize, what comes first;
    nothing (end = begin) without a finalize, and where all is reduced after the backward.
    ``unseen``: the completion is not known, or is that of its enqueueing only.
    """

    calls: np.ndarray
    finalize: np.ndarray
    begin_ns: np.ndarray
    end_ns: np.ndarray
    unseen: np.ndarray


def in_flight(found: np.ndarray, finalize: np.ndarray) -> InFlight:
    """``found``: :func:`ddpviz.analysis.calls.calls`; ``finalize``: FINALIZE records."""
    called = found[among(found["cause"], *OF_BACKWARD)]
    at = following(called, finalize)
    begin_ns = called["begin_ns"]
    # static_graph's first reduction, used map and all, comes after the backward has computed.
    delayed = (finalize["flags"] & Flag.DELAYED) != 0
    until_ns = pick(np.where(delayed, 0, finalize["begin_ns"]), at, 0)
    end_ns = np.maximum(np.minimum(called["end_ns"], until_ns), begin_ns)
    return InFlight(called, at, begin_ns, end_ns, (called["end_ns"] == 0) | enqueued(called))


def enqueued(records: np.ndarray) -> np.ndarray:
    """Where a record's end says when the work was enqueued, not when it ran (CUDA)."""
    found: np.ndarray = (records["flags"] & Flag.ENQUEUED) != 0
    return found


def enqueued_runs(records: np.ndarray) -> np.ndarray:
    """Run keys of the backwards whose collectives were only enqueued, as far as the host saw."""
    called = records[among(records["cause"], *OF_BACKWARD) & enqueued(records)]
    return np.unique(run_keys(called))


def unseen_modules(source: Source) -> dict[tuple[int, int], str]:
    """Why the buckets of a module cannot be seen, by rank and module: its backwards look as if
    they reduced nothing."""
    return {
        (rank, note.module): note.why
        for rank in source.ranks
        for note in source.notes(Unavailable, rank=rank)
        if note.what == "buckets"
    }


def reduced_unseen(forward: np.ndarray, unseen: dict[tuple[int, int], str]) -> np.ndarray:
    """Which forwards belong to such a module and are followed by a reduction."""
    keys = [(rank << 8) | module for rank, module in unseen]
    synced = (forward["flags"] & (Flag.NO_SYNC | Flag.NO_GRAD)) == 0
    found: np.ndarray = synced & np.isin(
        (forward["rank"].astype(np.int64) << 8) | forward["module"], keys
    )
    return found
