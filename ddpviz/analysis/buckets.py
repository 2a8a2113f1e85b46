"""Every bucket of every backward: its marks, the stretches between them, who came last."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd

from ddpviz.analysis.calls import UNSPLIT, Arrivals, Unsplit, arrivals, calls
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
    segments,
    since_ms,
    sorted_rows,
    split_run_keys,
    table,
)
from ddpviz.events import Cause, Clock, Flag, Kind

_SCHEMA = {
    "step": "int64",
    "iteration": "int64",
    "rank": "int64",
    "module": "int64",
    "bucket": "int64",
    "bytes": "int64",
    "parameters": "int64",
    "first_ready_ns": "Int64",
    "full_ns": "Int64",
    "turn_ns": "Int64",
    "launched_ns": "Int64",
    "last_launched_ns": "Int64",
    "done_ns": "Int64",
    "copied_ns": "Int64",
    "filling_ms": "float64",
    "head_of_line_ms": "float64",
    "launch_delay_ms": "float64",
    "wait_for_rank_ms": "float64",
    "transfer_ms": "float64",
    "last_parameter": "str",
    "last_rank": "Int64",
    "sequence": "int64",
    "plan_version": "int64",
    "derived": "str",
    "unsplit": "str",
}
#: Rows of :func:`bucket_rows`: times are 0 where unknown, other numbers -1, lengths NaN.
BUCKET = row_type(_SCHEMA)
#: A run (rank, module, iteration) and a bucket in one key: run position, launch order.
_BUCKET_BITS = 31


def buckets(source: Source, step: int | None = None) -> pd.DataFrame:
    """One row per bucket that a rank reduced in an iteration of a module, or should have.

    Marks, epoch ns, <NA> where unknown: ``first_ready_ns``, ``full_ns`` (first and last gradient
    ready), ``turn_ns`` (it is full and the bucket before it was launched: DDP launches them in
    order), ``launched_ns`` (its first collective), ``last_launched_ns`` (that collective on the
    last rank), ``done_ns`` (its last collective), ``copied_ns`` (finalize ended: an upper bound,
    but on CUDA, where the host does not wait for it). ``done_ns`` is a bound, too, where finalize
    ended before the completion was recorded: see :mod:`ddpviz.analysis.ends`.
    Stretches between them in ms, NaN where a mark is unknown: ``filling_ms``,
    ``head_of_line_ms`` (0 for the first bucket), ``launch_delay_ms`` (the Reducer copies the last
    gradient into the bucket and launches it, which is recorded once Python's GIL is free),
    ``wait_for_rank_ms``, ``transfer_ms``. With times of a device, ``launched_ns`` is when its
    stream had the bucket's gradients; when each came is known there at level "detail" only. The
    last two compare ranks, so they need one clock that saw the transfer: where ``unsplit`` gives a
    reason they are NaN, and what is known is the whole from launch to completion.

    ``bytes``, ``parameters``: by the plan of that iteration, without one the bytes sent and 0.
    ``last_parameter``: whose gradient came last, "" where unknown. ``last_rank``: who launched
    last; for a bucket that never completed, who never launched it. ``sequence``, ``plan_version``:
    -1 where unknown. ``derived``: the columns, comma-separated, that are not differences of two
    measured marks or are bounds only; "bucket" and "parameters" where they were inferred, as of a
    trace, which names neither. A bucket that was filled in part but never launched (its
    backward did not finish) has no ``launched_ns``. Modules after the 254th share an id, so their
    buckets are not told apart and left out.
    ``attrs["clipped"]``: rows whose last launch was recorded after their own completion.
    Raises ValueError for a step that was not recorded.
    """
    check_step(source, step)
    made = table(_SCHEMA, reduced_rows(source, step, plan_index(source)))
    made.attrs["clipped"] = int(made["derived"].str.contains("last_launched_ns").sum())
    return made


def reduced_rows(source: Source, step: int | None, index: PlanIndex) -> np.ndarray:
    """The rows of :func:`buckets`; none of a step that was not recorded."""
    every_call = calls(source, step)
    reached = arrivals(source, every_call, every_call, step is None)
    return bucket_rows(source, step, every_call, reached, index)


def bucket_rows(
    source: Source, step: int | None, every_call: np.ndarray, reached: Arrivals, index: PlanIndex
) -> np.ndarray:
    """The rows of :func:`buckets`, of dtype :data:`BUCKET`; none of a step that was not recorded.

    ``every_call``: :func:`calls` of the same step; ``reached``: who came last at each of them.
    """
    of_bucket = (every_call["cause"] == Cause.BUCKET) & (every_call["index"] >= 0)
    reduces = np.flatnonzero(of_bucket & (every_call["module"] < SHARED_ID))
    reduced = every_call[reduces]
    ready = source.records(kinds=Kind.GRAD_READY, steps=listed(step))
    ready = ready[ready["module"] < SHARED_ID]
    finalize = source.records(kinds=Kind.FINALIZE, steps=listed(step))
    of_reduced = run_keys(reduced)
    # The Reducer's own clock is the host's: on a device it says when gradients were enqueued.
    on_device = np.isin(run_keys(ready), of_reduced[reduced["clock"] == Clock.CUDA])
    ready = ready[~on_device | (ready["clock"] == Clock.CUDA)]
    of_ready = run_keys(ready)
    runs = np.unique(np.concatenate([of_reduced, of_ready]))
    plan = index.at(runs)
    copied_ns = _finalized_ns(finalize, runs)

    launch = _launches(reduced, find(runs, of_reduced))
    filled = _fillings(ready, find(runs, of_ready), plan, index)
    hooked = np.isin(runs, run_keys(_unassigned(every_call)))
    unfinished = (copied_ns == 0) & ~hooked
    known = find(launch.keys, filled.keys) >= 0
    keep = ~known & unfinished[filled.keys >> _BUCKET_BITS]
    keys = np.sort(np.concatenate([launch.keys, filled.keys[keep]]))

    run, bucket = keys >> _BUCKET_BITS, keys & ((1 << _BUCKET_BITS) - 1)
    at = find(launch.keys, keys)
    of_fill = find(filled.keys, keys)
    first_call = reduced[launch.first]
    who = reached.take(reduces[launch.first])
    rank, module, iteration = split_run_keys(runs[run])
    in_plan = index.bucket(plan[run], bucket)
    parameters = pick(index.bucket_parameters, in_plan, 0)

    first_ready_ns = pick(filled.first_ns, of_fill, 0)
    full = (parameters > 0) & (pick(filled.count, of_fill, 0) >= parameters)
    full_ns = np.where(full, pick(filled.last_ns, of_fill, 0), 0)
    launched_ns = pick(first_call["begin_ns"], at, 0)
    last_launched_ns = pick(who.last_launched_ns, at, 0)
    done_ns = pick(launch.done_ns, at, 0)
    turn_ns = _turns_ns(keys, full_ns, launched_ns)
    clipped = pick(who.clipped, at, False)
    inferred = pick((first_call["flags"] & Flag.INFERRED) != 0, at, False)
    unsplit = np.where((launch.flags & Flag.ENQUEUED) != 0, Unsplit.ENQUEUED, who.unsplit)
    unsplit = pick(unsplit, at, Unsplit.SPLIT)
    split = unsplit == Unsplit.SPLIT
    # A lower bound where the work was only enqueued, or a hook went on; an upper one where the
    # completion was recorded late.
    is_bound = (launch.flags & (Flag.ENQUEUED | Flag.DERIVED)) != 0
    is_bound |= hooked[launch.keys >> _BUCKET_BITS]
    bounded = pick(is_bound, at, False) & (done_ns > 0)
    turned = (turn_ns > 0) & full
    copied = (at >= 0) & (unsplit != Unsplit.ENQUEUED)
    copied_ns = np.where(copied, copied_ns[run], 0)
    made = rows(
        BUCKET,
        {
            "step": np.where(
                at >= 0, pick(first_call["step"], at, -1), pick(filled.step, of_fill, -1)
            ),
            "iteration": iteration,
            "rank": rank,
            "module": module,
            "bucket": bucket,
            "bytes": np.where(
                in_plan >= 0,
                pick(index.bucket_bytes, in_plan, 0),
                pick(first_call["bytes"], at, 0),
            ),
            "parameters": parameters,
            "first_ready_ns": first_ready_ns,
            "full_ns": full_ns,
            "turn_ns": turn_ns,
            "launched_ns": launched_ns,
            "last_launched_ns": last_launched_ns,
            "done_ns": done_ns,
            "copied_ns": copied_ns,
            "filling_ms": since_ms(first_ready_ns, full_ns),
            "head_of_line_ms": np.maximum(since_ms(full_ns, turn_ns), 0.0),
            "launch_delay_ms": since_ms(turn_ns, launched_ns),
            "wait_for_rank_ms": np.where(split, since_ms(launched_ns, last_launched_ns), np.nan),
            "transfer_ms": np.where(split, since_ms(last_launched_ns, done_ns), np.nan),
            "last_parameter": np.where(full, pick(filled.last_name, of_fill, ""), ""),
            "last_rank": pick(who.last_rank, at, -1),
            "sequence": pick(first_call["sequence"], at, -1),
            "plan_version": index.version(plan[run]),
            "derived": _derived(
                full_ns=full,
                turn_ns=turned,
                last_launched_ns=clipped,
                done_ns=bounded,
                copied_ns=copied_ns > 0,
                head_of_line_ms=turned,
                launch_delay_ms=turned,
                wait_for_rank_ms=clipped,
                transfer_ms=split & (clipped | bounded),
                bucket=inferred,
                parameters=inferred & (parameters > 0),
            ),
            "unsplit": UNSPLIT[unsplit],
        },
    )
    return sorted_rows(made, "step", "iteration", "rank", "module", "bucket")


def _turns_ns(keys: np.ndarray, full_ns: np.ndarray, launched_ns: np.ndarray) -> np.ndarray:
    """When each bucket was full and the one before it launched; 0 where one of them is unknown.

    At most its own launch: "full" is on the Reducer's clock, apart from ours by microseconds.
    """
    before = find(keys, np.where((keys & ((1 << _BUCKET_BITS) - 1)) > 0, keys - 1, -1))
    first = (keys & ((1 << _BUCKET_BITS) - 1)) == 0
    before_ns = pick(launched_ns, before, 0)
    known = (full_ns > 0) & (launched_ns > 0) & (first | (before_ns > 0))
    return np.where(known, np.minimum(np.maximum(full_ns, before_ns), launched_ns), 0)


@dataclasses.dataclass(frozen=True)
class _Launches:
    """Per launched bucket: its key, its first call's position, its end (0 if one never ended)."""

    keys: np.ndarray
    first: np.ndarray
    done_ns: np.ndarray
    flags: np.ndarray


def _launches(reduced: np.ndarray, run: np.ndarray) -> _Launches:
    """``run``: position of the run of each."""
    keys = (run << _BUCKET_BITS) | reduced["index"]
    order = np.lexsort((reduced["begin_ns"], keys))
    unique, first, _ = segments(keys[order])
    if not len(unique):
        nothing = np.zeros(0, np.int64)
        return _Launches(unique, nothing, nothing, nothing)
    end_ns = reduced["end_ns"][order]
    done_ns = np.maximum.reduceat(end_ns, first)
    done_ns[np.minimum.reduceat(end_ns, first) == 0] = 0
    flags = np.bitwise_or.reduceat(reduced["flags"][order].astype(np.int64), first)
    return _Launches(unique, order[first], done_ns, flags)


@dataclasses.dataclass(frozen=True)
class _Fillings:
    """Per bucket with ready gradients: their number, the first and the last, and its name."""

    keys: np.ndarray
    count: np.ndarray
    first_ns: np.ndarray
    last_ns: np.ndarray
    last_name: np.ndarray
    step: np.ndarray


def _fillings(ready: np.ndarray, run: np.ndarray, plan: np.ndarray, index: PlanIndex) -> _Fillings:
    """``run``: position of the run of each; ``plan``: of each run."""
    place = index.parameter(plan[run], ready["index"].astype(np.int64))
    bucket = pick(index.parameter_bucket, place, -1)
    known = bucket >= 0
    ready, run, place, bucket = ready[known], run[known], place[known], bucket[known]
    keys = (run << _BUCKET_BITS) | bucket
    order = np.lexsort((ready["begin_ns"], keys))
    unique, first, last = segments(keys[order])
    begin_ns = ready["begin_ns"][order]
    return _Fillings(
        unique,
        last - first + 1,
        begin_ns[first],
        begin_ns[last],
        index.parameter_names[place[order][last]],
        ready["step"][order][first],
    )


def _finalized_ns(finalize: np.ndarray, runs: np.ndarray) -> np.ndarray:
    """When finalize ended in each run, 0 where it did not."""
    keys = run_keys(finalize)
    order = np.lexsort((finalize["end_ns"], keys))
    unique, _, last = segments(keys[order])
    return pick(finalize["end_ns"][order][last], find(unique, runs), 0)


def _unassigned(every_call: np.ndarray) -> np.ndarray:
    """A comm hook's collectives of which only the module is known, not the bucket."""
    found: np.ndarray = every_call[
        (every_call["cause"] == Cause.BUCKET) & (every_call["index"] < 0)
    ]
    return found


def _derived(**columns_where: np.ndarray) -> np.ndarray:
    """Per row the names of ``columns_where`` whose mask holds, separated by commas."""
    patterns = sum(mask.astype(np.int64) << bit for bit, mask in enumerate(columns_where.values()))
    unique, inverse = np.unique(patterns, return_inverse=True)
    texts = [
        ",".join(name for bit, name in enumerate(columns_where) if pattern >> bit & 1)
        for pattern in unique.tolist()
    ]
    return np.array(texts, object)[inverse]
