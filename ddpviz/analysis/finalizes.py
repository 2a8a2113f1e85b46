"""The end of a backward: what finalize waits for, what it copies, and who divides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ddpviz.analysis.buckets import reduced_rows
from ddpviz.analysis.calls import UNSPLIT, Unsplit
from ddpviz.analysis.configurations import configured
from ddpviz.analysis.plans import plan_index
from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import (
    SHARED_ID,
    check_step,
    find,
    listed,
    run_keys,
    segments,
    sorted_rows,
    table,
)
from ddpviz.analysis.traced import from_trace
from ddpviz.events import Kind, Module

_SCHEMA = {
    "step": "int64",
    "iteration": "int64",
    "rank": "int64",
    "module": "int64",
    "bucket": "int64",
    "bytes": "int64",
    "finalize_ms": "float64",
    "wait_ms": "float64",
    "rest_ms": "float64",
    "copy": "str",
    "division": "str",
    "derived": "str",
    "proxy": "str",
}
#: torch's hook of DDP with ``_apply_optimizer_in_backward``.
_IN_BACKWARD = "_apply_optim_in_backward_hook"
_PROXY = (
    "how long one bucket is copied cannot be seen from outside C++: rest_ms is the part of "
    "finalize in which every bucket was complete"
)

_NOT_IN_TRACE = "a trace does not tell its module's configuration"


def finalize(source: Source, step: int | None = None) -> pd.DataFrame:
    """One row per bucket of each backward that reduced gradients.

    Finalize takes buckets one after the other: it waits for one, copies it back, and so on
    (``Reducer::finalize_backward``). ``finalize_ms``: all of it. ``wait_ms``: how long of it this
    bucket was not complete and all before it were: an upper bound, as these may be copied back
    meanwhile. ``rest_ms``: how long every bucket was complete, the same for all of a backward.
    NaN where a completion is not known, ``rest_ms`` also where the last was recorded late; on CUDA
    (``proxy`` says so).

    ``copy``, ``division``: what DDP does in this configuration, in words: where the reduced
    gradients are copied, and where they are divided by the number of ranks. ``derived``: the
    columns that are computed from completions. The first reduction of a ``static_graph`` is all in
    finalize. Raises ValueError for a step that was not recorded.
    """
    check_step(source, step)
    ended = source.records(kinds=Kind.FINALIZE, steps=listed(step))
    ended = ended[ended["module"] < SHARED_ID]
    ended = ended[np.lexsort((ended["module"], ended["rank"], ended["iteration"], ended["step"]))]
    traced = from_trace(source)
    settings = {rank: configured(source, rank) for rank in np.unique(ended["rank"]).tolist()}
    reduced = reduced_rows(source, step, plan_index(source))
    reduced = sorted_rows(reduced, "rank", "module", "iteration", "bucket")
    runs, first, last = segments(run_keys(reduced))
    rows: list[dict[str, Any]] = []
    for record, at in zip(ended, find(runs, run_keys(ended)).tolist(), strict=True):
        if at < 0:
            continue
        rank, module, iteration = (int(record[name]) for name in ("rank", "module", "iteration"))
        mine = reduced[first[at] : last[at] + 1]
        streamed = bool((mine["unsplit"] == UNSPLIT[Unsplit.ENQUEUED]).any())
        done_ns = np.zeros(len(mine), np.int64) if streamed else mine["done_ns"]
        waits_ms, rest_ms = _split_ms(int(record["begin_ns"]), int(record["end_ns"]), done_ns)
        values = settings[rank].at(module, int(record["begin_ns"]))
        known = values or not traced
        sparse = _sparse(source, rank, module)
        common = {
            "step": int(record["step"]),
            "iteration": iteration,
            "rank": rank,
            "module": module,
            "finalize_ms": (int(record["end_ns"]) - int(record["begin_ns"])) / 1e6,
            "rest_ms": rest_ms,
            "copy": copy(values, sparse) if known else _NOT_IN_TRACE,
            "division": division(values, sparse) if known else _NOT_IN_TRACE,
            "derived": "" if streamed else "wait_ms,rest_ms",
            "proxy": UNSPLIT[Unsplit.ENQUEUED] if streamed else _PROXY,
        }
        for bucket, nbytes, wait_ms in zip(mine["bucket"], mine["bytes"], waits_ms, strict=True):
            rows.append({**common, "bucket": bucket, "bytes": nbytes, "wait_ms": wait_ms})
    return table(_SCHEMA, {name: [row[name] for row in rows] for name in _SCHEMA})


def _split_ms(begin_ns: int, end_ns: int, done_ns: np.ndarray) -> tuple[np.ndarray, float]:
    """Waits for buckets in their order, and what is left; NaN from an unknown completion (0) on."""
    known = np.logical_and.accumulate(done_ns > 0)
    reached_ns = np.maximum.accumulate(np.clip(done_ns, begin_ns, end_ns))
    waits_ms = np.diff(reached_ns, prepend=begin_ns) / 1e6
    # A completion that was recorded late counts as the end of finalize: an upper bound.
    told = known.all() and reached_ns[-1] < end_ns
    rest_ms = (end_ns - int(reached_ns[-1])) / 1e6 if told else np.nan
    return np.where(known, waits_ms, np.nan), rest_ms


def copy(values: dict[str, Any], sparse: Sequence[str] = ()) -> str:
    """What finalize copies back in a configuration (``Configuration.values``).

    ``sparse``: names of parameters with sparse gradients. ``Reducer::finalize_backward`` of torch
    2.13, and ``finalize_bucket_dense``.
    """
    if not values:
        return "not known: its module's configuration was not recorded"
    hook = values.get("comm_hook") or ""
    if _IN_BACKWARD in hook:
        return "nothing is copied: its comm hook has the optimizer step within the backward"
    told = "each gradient is copied out of the reduced bucket"
    if values.get("gradient_as_bucket_view"):
        told = "gradients are views of the bucket: nothing is copied"
        if hook:
            told += ", unless the comm hook's result is another tensor, which is copied into it"
    if sparse:
        told += f"; the sparse gradient of {_some(sparse)} is the reduced tensor itself"
    return told


def division(values: dict[str, Any], sparse: Sequence[str] = ()) -> str:
    """Where gradients are divided by the number of ranks in a configuration, and by which number.

    ``sparse``: names of parameters with sparse gradients. From ``Reducer``'s
    ``mark_variable_ready_dense`` and ``_sparse`` and ``run_comm_hook``, and from DDP's
    ``compiled_accum_grad_hook``, as of torch 2.13.
    """
    if not values:
        return "not known: its module's configuration was not recorded"
    hook = values.get("comm_hook")
    if hook:
        return f"in the comm hook, {hook}: with a hook DDP divides nothing itself"
    if values.get("python_reducer"):
        return "in python_reducer's hook of each parameter, before its all-reduce"
    told = _divided_where(values)
    if sparse:
        told += f"; the sparse gradient of {_some(sparse)} where it lies, as it gets ready"
    return told + _divided_by(values)


def _some(sparse: Sequence[str]) -> str:
    return f"{sparse[0]} and {len(sparse) - 1} more" if len(sparse) > 1 else sparse[0]


def _divided_where(values: dict[str, Any]) -> str:
    if values.get("batched_grad_copy"):
        return "once per bucket, when all its gradients were copied in (batched_grad_copy)"
    if values.get("gradient_as_bucket_view"):
        return (
            "in the bucket, as each gradient gets ready, before the all-reduce; a gradient that is "
            "not a view of it yet, as after zero_grad() has set it to None, is divided while it is "
            "copied in"
        )
    return "gradient by gradient, while each is copied into the bucket, before the all-reduce"


def _divided_by(values: dict[str, Any]) -> str:
    """What Join makes of the number of ranks."""
    initial = values.get("divide_by_initial_world_size")
    if initial is None:
        return ""
    if initial:
        return "; under Join by all ranks, also those that have joined"
    return (
        "; under Join by the ranks that have not joined yet, as divide_by_initial_world_size=False"
    )


def _sparse(source: Source, rank: int, module: int) -> tuple[str, ...]:
    found = [note.sparse for note in source.notes(Module, rank=rank) if note.id == module]
    return found[-1] if found else ()
