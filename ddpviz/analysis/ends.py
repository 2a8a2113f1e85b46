"""When collectives had ended at the latest.

A completion is recorded by a callback of the collective's future, which needs Python's GIL: it can
be late, by milliseconds where the training thread is busy, never early. What is known besides is
when the training thread had the result.
"""

from __future__ import annotations

import numpy as np

from ddpviz.analysis.naming import label_texts
from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import among, run_keys
from ddpviz.events import Cause, Flag, Kind

#: What a backward waits for at its end.
OF_BACKWARD = (Cause.BUCKET, Cause.USED_MAP)

#: Spans that the training thread does not leave before collectives of these causes are complete.
WAITED_IN = {
    Kind.FINALIZE: OF_BACKWARD,
    Kind.BUFFER_SYNC: (Cause.BUFFERS,),
    Kind.REBUILD: (Cause.REBUILD_ORDER,),
}


def bounded(source: Source, found: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """``found`` with each end cut to the end of the span that waited for it, and marked DERIVED.

    ``spans``: records of the kinds of :data:`WAITED_IN`. Left as recorded is what ended before,
    what never completed, what was only enqueued (CUDA), and what a hook launched: nobody but the
    hook knows whether anyone waits for it.
    """
    left = (found["flags"] & (Flag.ENQUEUED | Flag.FROM_HOOK)) != 0
    left |= (found["end_ns"] == 0) | _of_buffer_hooks(source, found)
    result = found.copy()
    for kind, causes in WAITED_IN.items():
        asked = np.flatnonzero(among(found["cause"], *causes) & ~left)
        of_kind = spans[spans["kind"] == kind]
        if not len(asked) or not len(of_kind):
            continue
        at = following(found[asked], of_kind)
        known = at >= 0
        asked, waited = asked[known], of_kind[at[known]]
        late = waited["end_ns"] < found["end_ns"][asked]
        if kind != Kind.FINALIZE:  # launched in it; buckets come before theirs
            late &= waited["begin_ns"] <= found["begin_ns"][asked]
        result["end_ns"][asked[late]] = waited["end_ns"][late]
        result["flags"][asked[late]] |= np.uint16(Flag.DERIVED)
    return result


def _of_buffer_hooks(source: Source, found: np.ndarray) -> np.ndarray:
    """DDP itself broadcasts buffers. What a buffer hook sends instead is awaited in finalize."""
    mine: np.ndarray = found["cause"] == Cause.BUFFERS
    if mine.any():
        texts, position = label_texts(source, found[mine])
        other = np.array([not text.startswith("broadcast") for text in texts], bool)
        mine[mine] = other[position]
    return mine


def following(called: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Position of the first span of each call's run that ended after its launch, or -1.

    The run alone would not do: a graph that is kept can have two backwards.
    """
    count, both = len(called), len(called) + len(spans)
    keys = np.concatenate([run_keys(called), run_keys(spans)])
    time_ns = np.concatenate([called["begin_ns"], spans["end_ns"]])
    order = np.lexsort((time_ns, keys))  # stable: of the same time the call comes first
    places = np.where(order >= count, np.arange(both), both)
    next_place = np.minimum.accumulate(places[::-1])[::-1]
    found = np.full(both, -1, np.int64)
    known = next_place < both
    found[order[known]] = order[next_place[known]]
    found = found[:count]
    same = (found >= 0) & (keys[np.maximum(found, 0)] == keys[:count])
    return np.where(same, found - count, -1)
