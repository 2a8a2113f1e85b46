"""Communication hidden behind backward and exposed after it, as DDP's own logger defines it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ddpviz.analysis.calls import calls, of_buckets
from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import find, listed, ordered, pick, run_keys, segments, since_ms, table
from ddpviz.events import Kind

_SCHEMA = {
    "step": "int64",
    "iteration": "int64",
    "rank": "int64",
    "module": "int64",
    "backward_compute_ms": "float64",
    "backward_comm_ms": "float64",
    "backward_compute_comm_overlap_ms": "float64",
    "hidden_ms": "float64",
    "exposed_ms": "float64",
}


def overlap(source: Source, step: int | None = None) -> pd.DataFrame:
    """One row per backward that reduced gradients, by rank and module, in ms.

    ``Reducer``'s ``record_backward_*`` marks, seen from outside: compute from
    ``prepare_for_backward`` to the begin of finalize; comm from the first bucket's launch to the
    end of finalize; overlap from the first launch to the begin of finalize, at least 0.
    ``hidden_ms`` is that overlap; ``exposed_ms`` is finalize itself: waiting for the buckets and
    copying them back. The end of an unfinished one is unknown: NaN.
    """
    finalize = source.records(kinds=Kind.FINALIZE, steps=listed(step))
    finalize = finalize[np.argsort(run_keys(finalize), kind="stable")]
    keys = run_keys(finalize)
    begin_ns, end_ns = finalize["begin_ns"], finalize["end_ns"]
    prepared_ns = last_prepared_ns(source, keys, step)
    first_ns = first_launches_ns(source, keys, step, calls(source, step))
    hidden_ms = np.maximum(since_ms(first_ns, begin_ns), 0.0)
    made = table(
        _SCHEMA,
        {
            **{name: finalize[name] for name in ("step", "iteration", "rank", "module")},
            "backward_compute_ms": since_ms(prepared_ns, begin_ns),
            "backward_comm_ms": since_ms(first_ns, end_ns),
            "backward_compute_comm_overlap_ms": hidden_ms,
            "hidden_ms": hidden_ms,
            "exposed_ms": since_ms(begin_ns, end_ns),
        },
    )
    return ordered(made, "step", "iteration", "rank", "module")


def last_prepared_ns(source: Source, runs: np.ndarray, step: int | None) -> np.ndarray:
    """When ``prepare_for_backward`` was last entered in each run; 0 where it was not."""
    prepared = source.records(kinds=Kind.PREPARE_FOR_BACKWARD, steps=listed(step))
    keys = run_keys(prepared)
    order = np.lexsort((prepared["begin_ns"], keys))
    unique, _, last = segments(keys[order])
    return pick(prepared["begin_ns"][order][last], find(unique, runs), 0)


def first_launches_ns(
    source: Source, runs: np.ndarray, step: int | None, found: np.ndarray
) -> np.ndarray:
    """When each run's first bucket was handed over: to the group, or to a comm hook before it.

    ``found``: :func:`calls` of the same step. 0 where there was none.
    """
    hooks = source.records(kinds=Kind.COMM_HOOK, steps=listed(step))
    launched = np.concatenate([of_buckets(found), hooks])
    keys = run_keys(launched)
    order = np.lexsort((launched["begin_ns"], keys))
    unique, first, _ = segments(keys[order])
    return pick(launched["begin_ns"][order][first], find(unique, runs), 0)
