"""Communication hidden behind backward and exposed after it, beside what DDP's logger calls so."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ddpviz.analysis.calls import calls, of_buckets
from ddpviz.analysis.communication import enqueued_runs, in_flight
from ddpviz.analysis.ends import following
from ddpviz.analysis.exposed import hook_waits
from ddpviz.analysis.intervals import union_ns
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
    segments,
    since_ms,
    sorted_rows,
    stacked,
    table,
)
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
    "enqueued": "bool",
}
_ROW = row_type(_SCHEMA)


def overlap(source: Source, step: int | None = None) -> pd.DataFrame:
    """One row per backward that reduced gradients, by rank and module, in ms.

    The first three columns are DDP's own logger's (``Reducer``'s ``record_backward_*`` marks, seen
    from outside): compute from ``prepare_for_backward`` to the begin of finalize; comm from the
    first bucket's launch to the end of finalize; overlap from the first launch to the begin of
    finalize, at least 0, whether or not anything was in flight all that time.

    ``hidden_ms``: how long at least one of the backward's collectives was in flight before
    finalize began, but not where a comm hook waited for its own; from launches and completions,
    NaN where a completion is not known. ``exposed_ms``: finalize itself, waiting for the buckets
    and copying them back, and comm hooks that waited; NaN where finalize's end is not known.
    Because of the copying they do not sum to the time in flight. What a forward waits for is in
    :func:`ddpviz.analysis.steps` only.

    ``enqueued``: the collectives were enqueued on a CUDA stream, which host clocks do not see
    into: everything is NaN (the logger has CUDA events there).
    Raises ValueError for a step that was not recorded.
    """
    check_step(source, step)
    finalize = source.records(kinds=Kind.FINALIZE, steps=listed(step))
    finalize = finalize[np.argsort(run_keys(finalize), kind="stable")]
    keys, found = run_keys(finalize), calls(source, step)
    begin_ns, end_ns = finalize["begin_ns"], finalize["end_ns"]
    prepared_ns = last_prepared_ns(source, keys, step)
    first_ns = first_launches_ns(source, keys, step, found)
    on_stream = np.isin(keys, enqueued_runs(found))
    hooks = source.records(kinds=Kind.COMM_HOOK, steps=listed(step))
    hidden_ms, hooks_ms = _hidden_ms(finalize, found, hooks)
    columns = {
        "backward_compute_ms": since_ms(prepared_ns, begin_ns),
        "backward_comm_ms": since_ms(first_ns, end_ns),
        "backward_compute_comm_overlap_ms": np.maximum(since_ms(first_ns, begin_ns), 0.0),
        "hidden_ms": hidden_ms,
        "exposed_ms": since_ms(begin_ns, end_ns) + hooks_ms,
    }
    made = rows(
        _ROW,
        {
            **{name: finalize[name] for name in ("step", "iteration", "rank", "module")},
            **{name: np.where(on_stream, np.nan, values) for name, values in columns.items()},
            "enqueued": on_stream,
        },
    )
    return table(_SCHEMA, sorted_rows(made, "step", "iteration", "rank", "module"))


def _hidden_ms(
    finalize: np.ndarray, found: np.ndarray, hooks: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Hidden communication of each backward, and what its comm hooks waited for."""
    flight, waits = in_flight(found, finalize), hook_waits(hooks, found)
    waited, of_hook = flight.finalize >= 0, following(waits, finalize)
    of, waits, of_hook = flight.finalize[waited], waits[of_hook >= 0], of_hook[of_hook >= 0]
    hooks_ns = union_ns(of_hook, waits["begin_ns"], waits["end_ns"], len(finalize))
    both_ns = union_ns(
        np.concatenate([of, of_hook]),
        np.concatenate([flight.begin_ns[waited], waits["begin_ns"]]),
        np.concatenate([flight.end_ns[waited], waits["end_ns"]]),
        len(finalize),
    )
    unknown = finalize["module"] >= SHARED_ID
    unknown[of[flight.unseen[waited]]] = True
    return np.where(unknown, np.nan, (both_ns - hooks_ns) / 1e6), hooks_ns / 1e6


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
    launched = stacked(of_buckets(found), hooks)
    keys = run_keys(launched)
    order = np.lexsort((launched["begin_ns"], keys))
    unique, first, _ = segments(keys[order])
    return pick(launched["begin_ns"][order][first], find(unique, runs), 0)
