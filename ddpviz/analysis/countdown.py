"""A backward replayed: gradients become ready, buckets count down, and are launched in order."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ddpviz.analysis.buckets import reduced_rows
from ddpviz.analysis.overlap import last_prepared_ns
from ddpviz.analysis.plans import PlanIndex, plan_index
from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import (
    SHARED_ID,
    check_step,
    find,
    pick,
    row_type,
    run_keys,
    sorted_rows,
    stacked,
    table,
)
from ddpviz.events import Kind, Module, Unused

_SCHEMA = {
    "module": "int64",
    "iteration": "int64",
    "time_ns": "int64",
    "since_ms": "float64",
    "event": "str",
    "bucket": "int64",
    "parameter": "Int64",
    "name": "str",
    "unused": "bool",
    "pending": "Int64",
    "next_bucket": "int64",
    "head_of_line_ms": "float64",
    "derived": "bool",
}
_ROW = row_type(_SCHEMA)
#: In the order in which the Reducer comes to them, where two have the same time.
_EVENTS = ("ready", "full", "launched", "done")


def countdown(source: Source, step: int, rank: int) -> pd.DataFrame:
    """One row per event of a rank's backwards in a step, in the order of time.

    ``event``: "ready", the gradient of ``parameter`` (its index, and ``name``) is, or it was
    ``unused``: without one, and marked ready at the first gradient of another; "full", the
    last of its bucket is; "launched", the bucket's reduction; "done", its completion. ``since_ms``:
    since ``prepare_for_backward``, NaN where that is not known. ``pending``: how many gradients
    the bucket waits for after the event, <NA> without a plan or ready times (the first step of a
    ``static_graph``). ``next_bucket``: which one is to be launched next, after the event: an
    earlier one that is not full holds up those after it. ``head_of_line_ms``: of "launched", how
    long the bucket was full and had to wait for an earlier one; NaN else. ``derived``: "full" is
    computed, and "launched" and "done" are where ``buckets`` says so.
    Raises ValueError for a step that was not recorded.
    """
    check_step(source, step)
    index = plan_index(source)
    reduced = reduced_rows(source, step, index)
    return table(_SCHEMA, event_rows(source, step, rank, index, reduced))


def event_rows(
    source: Source, step: int, rank: int, index: PlanIndex, reduced: np.ndarray
) -> np.ndarray:
    """The rows of :func:`countdown`: unknown numbers are -1. ``reduced``: the step's buckets."""
    ready = source.records(kinds=Kind.GRAD_READY, ranks=rank, steps=[step])
    ready = ready[ready["module"] < SHARED_ID]
    events = stacked(_ready(ready, index), *_of_buckets(reduced[reduced["rank"] == rank]))
    if not len(events):
        return events
    _name(events, source, rank)
    _mark_unused(events, source, rank)
    at = np.array([_EVENTS.index(event) for event in events["event"]])
    events = events[np.lexsort((at, events["time_ns"], events["iteration"], events["module"]))]
    keys = (events["module"] << 32) | (events["iteration"] + 1)
    _count_down(events, keys, index, rank)
    runs = np.unique(keys)
    prepared_ns = last_prepared_ns(source, (np.int64(rank) << 40) | runs, step)
    begin_ns = pick(prepared_ns, find(runs, keys), 0)
    since_ms = (events["time_ns"] - begin_ns) / 1e6
    events["since_ms"] = np.where(begin_ns > 0, since_ms, np.nan)
    return sorted_rows(events, "time_ns")


def _name(events: np.ndarray, source: Source, rank: int) -> None:
    """Parameters that no plan names, from what is known of their module."""
    unnamed = np.flatnonzero((events["name"] == "") & (events["parameter"] >= 0))
    if not len(unnamed):
        return
    known = {note.id: note.parameters for note in source.notes(Module, rank=rank)}
    for at in unnamed.tolist():
        parameters = known.get(int(events["module"][at]), ())
        index = int(events["parameter"][at])
        events["name"][at] = (
            parameters[index].name if index < len(parameters) else f"parameter {index}"
        )


def _mark_unused(events: np.ndarray, source: Source, rank: int) -> None:
    """Parameters that this rank had no gradient of, as far as the Reducer has told that."""
    notes = sorted(source.notes(Unused, rank=rank), key=lambda note: note.iteration)
    for run in {(int(row["module"]), int(row["iteration"])) for row in events if notes}:
        known = [one for one in notes if one.module == run[0] and one.iteration <= run[1]]
        if known:
            mine = (events["module"] == run[0]) & (events["iteration"] == run[1])
            of = mine & (events["event"] == "ready")
            events["unused"] |= of & np.isin(events["parameter"], known[-1].parameters)


def _ready(ready: np.ndarray, index: PlanIndex) -> np.ndarray:
    runs, run = np.unique(run_keys(ready), return_inverse=True)
    place = index.parameter(index.at(runs)[run], ready["index"].astype(np.int64))
    return _events(
        len(ready),
        module=ready["module"],
        iteration=ready["iteration"],
        time_ns=ready["begin_ns"],
        event="ready",
        bucket=pick(index.parameter_bucket, place, -1),
        parameter=ready["index"],
        name=pick(index.parameter_names, place, ""),
    )


def _of_buckets(reduced: np.ndarray) -> list[np.ndarray]:
    found = []
    for event, column in (("full", "full_ns"), ("launched", "launched_ns"), ("done", "done_ns")):
        known = reduced[reduced[column] > 0]
        made = _events(
            len(known),
            module=known["module"],
            iteration=known["iteration"],
            time_ns=known[column],
            event=event,
            bucket=known["bucket"],
            name=known["last_parameter"] if event == "full" else "",
            derived=[column in names.split(",") for names in known["derived"]],
        )
        if event == "launched":
            made["head_of_line_ms"] = known["head_of_line_ms"]
        found.append(made)
    return found


def _events(count: int, **columns: object) -> np.ndarray:
    unknown = {
        "since_ms": np.nan, "parameter": -1, "name": "", "unused": False, "pending": -1,
        "next_bucket": 0, "head_of_line_ms": np.nan, "derived": False,
    }  # fmt: skip
    given = {**unknown, **columns}
    made = np.empty(count, _ROW)
    for name in _SCHEMA:
        made[name] = given[name]
    return made


def _count_down(events: np.ndarray, keys: np.ndarray, index: PlanIndex, rank: int) -> None:
    """Fills ``pending`` and ``next_bucket`` of events in the order of their runs and times."""
    for key in np.unique(keys).tolist():
        rows_of_run = np.flatnonzero(keys == key)
        plan = int(index.at(np.array([(rank << 40) | key]))[0])
        left: dict[int, int] = {}
        if plan >= 0 and (events["event"][rows_of_run] == "ready").any():
            sizes = index.bucket_parameters[index.bucket_start[plan] : index.bucket_start[plan + 1]]
            left = dict(enumerate(sizes.tolist()))
        launched = 0
        for row in rows_of_run.tolist():
            bucket, event = int(events["bucket"][row]), events["event"][row]
            if event == "ready" and bucket in left:
                left[bucket] -= 1
            elif event == "launched":
                launched = max(launched, bucket + 1)
            events["pending"][row] = left.get(bucket, -1)
            events["next_bucket"][row] = launched
