"""A rank's examined trace as the records of a recording."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ddpviz.events import NO_GROUP, NO_MODULE, RECORD, Cause, Clock, Flag, Kind
from ddpviz.traces.buckets import gradients_of, places
from ddpviz.traces.causes import Caused
from ddpviz.traces.phases import Iteration, Span
from ddpviz.traces.runs import Run

MODULE = 0
_SEEN = Flag.INFERRED


def records(
    run: Run,
    numbers: dict[tuple[str, int, int], int],
    groups: dict[str, int],
    labels: dict[str, int],
    moved_ns: int,
) -> np.ndarray:
    """In the order of their ends. ``numbers``: the sequence number of each collective, by what
    :meth:`Run.numbers` gives; ``groups``, ``labels``: ids by name; ``moved_ns``: is subtracted."""
    rows = [row for row in _rows(run, numbers, groups, labels) if row["begin_ns"]]
    made = np.zeros(len(rows), RECORD)
    for name, none in _NONE.items():
        made[name] = [row.get(name, none) for row in rows]
    made["rank"], made["clock"] = run.rank, Clock.PROFILER
    made["begin_ns"] -= moved_ns
    made["end_ns"][made["end_ns"] > 0] -= moved_ns
    in_order: np.ndarray = made[np.argsort(made["end_ns"], kind="stable")]
    return in_order


_NONE: dict[str, int] = {
    "begin_ns": 0,
    "end_ns": 0,
    "bytes": -1,
    "step": -1,
    "iteration": -1,
    "index": -1,
    "sequence": -1,
    "label": 0,
    "flags": 0,
    "kind": 0,
    "cause": 0,
    "module": NO_MODULE,
    "group": NO_GROUP,
}


def _rows(
    run: Run,
    numbers: dict[tuple[str, int, int], int],
    groups: dict[str, int],
    labels: dict[str, int],
) -> Iterator[dict[str, Any]]:
    by_iteration: dict[int, list[Caused]] = {}
    for one, key in zip(run.collectives, run.numbers(), strict=True):
        by_iteration.setdefault(one.iteration, []).append(one)
        yield from _collective(run, one, numbers[key], groups, labels)
    iterations = run.phases.iterations
    forwards = run.spans([it.forward for it in iterations])
    backwards, ready = _of_backwards(run, iterations), _of_gradients(run, iterations)
    bounds: dict[int, tuple[int, int]] = {}
    for it, forward in zip(iterations, forwards, strict=True):
        mine = by_iteration.get(it.number, [])
        yield from _forward(run, it, forward, mine)
        backward = backwards.get(it.number)
        if backward is not None:
            yield from _backward(run, it, backward, mine, ready.get(it.number, []))
            _extend(bounds, it.step, forward[0], backward[1])
    optimizers = run.phases.optimizers
    for optimizer, (begin_ns, end_ns) in zip(
        optimizers, run.spans([one.span for one in optimizers]), strict=True
    ):
        yield {
            "kind": Kind.OPTIMIZER,
            "begin_ns": begin_ns,
            "end_ns": end_ns,
            "step": optimizer.step,
            "label": labels[optimizer.name],
        }
        if optimizer.step in bounds:
            _extend(bounds, optimizer.step, begin_ns, end_ns)
    if not iterations:
        bounds = dict(run.phases.profiler_steps)
    for step, (begin_ns, end_ns) in bounds.items():
        if step >= 0:
            yield {
                "kind": Kind.STEP,
                "begin_ns": begin_ns,
                "end_ns": 0 if step == run.phases.cut else end_ns,
                "step": step,
                "index": step,
                "flags": _SEEN,
            }


def _extend(bounds: dict[int, tuple[int, int]], step: int, begin_ns: int, end_ns: int) -> None:
    known = bounds.get(step, (begin_ns, end_ns))
    if begin_ns and end_ns:
        bounds[step] = min(known[0], begin_ns), max(known[1], end_ns)


def _collective(
    run: Run, one: Caused, number: int, groups: dict[str, int], labels: dict[str, int]
) -> Iterator[dict[str, Any]]:
    told = one.collective
    begin_ns, end_ns = told.begin_ns, told.end_ns
    # No trace says why a collective was sent, nor of which bucket.
    inferred = 0 if one.cause == Cause.UNKNOWN else int(Flag.INFERRED)
    flags = inferred
    if not run.on_device or not begin_ns:
        begin_ns = told.launch_ns
    if run.enqueued:
        end_ns, flags = told.launched_ns, inferred | int(Flag.ENQUEUED)
    row = {
        "begin_ns": begin_ns,
        "bytes": max(told.bytes, 0),
        "step": one.step,
        "iteration": one.iteration,
        "index": one.bucket,
        "sequence": number,
        "label": labels[label(one)],
        "cause": one.cause,
        "group": groups[told.group],
        "module": MODULE if one.iteration >= 0 else NO_MODULE,
    }
    yield {**row, "kind": Kind.COLLECTIVE_LAUNCHED, "end_ns": begin_ns, "flags": inferred}
    if end_ns:
        yield {**row, "kind": Kind.COLLECTIVE_DONE, "end_ns": end_ns, "flags": flags}


def label(one: Caused) -> str:
    """Operation and dtype, as a recording labels a collective."""
    return f"{one.collective.operation} {one.collective.dtype}".strip()


def _common(it: Iteration) -> dict[str, Any]:
    return {"step": it.step, "iteration": it.number, "module": MODULE}


def _times(run: Run, mine: list[Caused], *wanted: Cause) -> tuple[int, int, list[Caused]]:
    """From the first begin to the last end of the collectives of these causes; 0, 0 for none."""
    found = [one for one in mine if one.cause in wanted]
    return *run.during(found), found


def _forward(
    run: Run, it: Iteration, span: tuple[int, int], mine: list[Caused]
) -> Iterator[dict[str, Any]]:
    begin_ns, end_ns = span
    flags = 0
    if not any(one.bucket >= 0 for one in mine) and it.step != run.phases.cut:
        flags = _SEEN | (Flag.NO_GRAD if it.backward is None else Flag.NO_SYNC)
    common = _common(it)
    rebuild_ns, rebuilt_ns, rebuilt = _times(run, mine, Cause.REBUILD_ORDER)
    sync_ns, synced_ns, synced = _times(run, mine, Cause.BUFFERS)
    if begin_ns and run.on_device:
        begin_ns = min([begin_ns, *(time for time in (rebuild_ns, sync_ns) if time)])
    if not run.on_device:
        # Its thread goes on as soon as it is told; gloo's may end its own row later.
        rebuilt_ns = min(rebuilt_ns, sync_ns) if sync_ns else min(rebuilt_ns, end_ns)
        synced_ns = min(synced_ns, end_ns)
    yield {**common, "kind": Kind.FORWARD, "begin_ns": begin_ns, "end_ns": end_ns, "flags": flags}
    if rebuilt:
        version = max(
            (at for at, plan in enumerate(run.layouts) if plan.iteration <= it.number), default=0
        )
        yield {
            **common,
            "kind": Kind.REBUILD,
            "begin_ns": rebuild_ns,
            "end_ns": rebuilt_ns,
            "index": version,
            "flags": _SEEN,
        }
    if synced:
        yield {
            **common,
            "kind": Kind.BUFFER_SYNC,
            "begin_ns": sync_ns,
            "end_ns": synced_ns,
            "bytes": sum(max(one.collective.bytes, 0) for one in synced),
            "flags": _SEEN,
        }
    module_ns = min(max(begin_ns, rebuilt_ns, synced_ns), end_ns)
    for kind, first, last in (
        (Kind.PRE_FORWARD, begin_ns, module_ns),
        (Kind.MODULE_FORWARD, module_ns, end_ns),
        (Kind.PREPARE_FOR_BACKWARD, end_ns, end_ns),
    ):
        if kind != Kind.PREPARE_FOR_BACKWARD or not flags:
            yield {**common, "kind": kind, "begin_ns": first, "end_ns": last, "flags": _SEEN}


def _of_backwards(run: Run, iterations: list[Iteration]) -> dict[int, tuple[int, int, int]]:
    """By iteration: begin, end, and where the last gradient had been computed."""
    found = [(it.number, it.backward) for it in iterations if it.backward is not None]
    whole = run.spans([backward.span for _, backward in found])
    computing = run.spans(
        [
            Span(backward.span.begin_ns, backward.nodes_end_ns, backward.span.thread)
            for _, backward in found
        ]
    )
    return {
        number: (begin_ns, end_ns, computed_ns)
        for (number, _), (begin_ns, end_ns), (_, computed_ns) in zip(
            found, whole, computing, strict=True
        )
    }


def _backward(
    run: Run,
    it: Iteration,
    times: tuple[int, int, int],
    mine: list[Caused],
    ready: list[tuple[int, int]],
) -> Iterator[dict[str, Any]]:
    begin_ns, end_ns, computed_ns = times
    backward = it.backward
    if backward is None or not begin_ns:
        return
    common = _common(it)
    reduced = [one for one in mine if one.bucket >= 0]
    if reduced and not len(backward.copies) and not backward.whole:
        # Nothing marks finalize's end: it waits for the buckets, and copies nothing back.
        last_ns = max(one.collective.end_ns for one in reduced)
        end_ns = max(end_ns, last_ns if run.on_device else min(last_ns, backward.until_ns))
    yield {
        **common,
        "kind": Kind.BACKWARD,
        "begin_ns": begin_ns,
        "end_ns": end_ns,
        "flags": _SEEN,
    }
    if not reduced:
        return
    yield from _ready(run, it, ready)
    if run.on_device:
        # The stream stands still until its last bucket is there; when the copies back run after
        # that is a matter of how fast the host hands them over.
        end_ns = max(one.collective.end_ns for one in reduced)
    yield {
        **common,
        "kind": Kind.FINALIZE,
        "begin_ns": computed_ns,
        "end_ns": max(computed_ns, end_ns),
        "index": len(reduced),
        "flags": _SEEN,
    }


def _of_gradients(run: Run, iterations: list[Iteration]) -> dict[int, list[tuple[int, int]]]:
    """By iteration, begin and end of each gradient's way into its bucket."""
    found = [(it.number, it.backward.ready_at) for it in iterations if it.backward is not None]
    at = np.concatenate([np.zeros(0, np.int64), *(positions for _, positions in found)])
    trace = run.trace
    columns = (values[at].tolist() for values in (trace.begin_ns, trace.end_ns, trace.thread))
    spans = run.spans([Span(*one) for one in zip(*columns, strict=True)])
    of: dict[int, list[tuple[int, int]]] = {}
    first = 0
    for number, positions in found:
        of[number] = spans[first : first + len(positions)]
        first += len(positions)
    return of


def _ready(run: Run, it: Iteration, spans: list[tuple[int, int]]) -> Iterator[dict[str, Any]]:
    backward = it.backward
    plans = [plan for plan in run.layouts if plan.iteration <= it.number]
    if backward is None or not plans:
        return
    found = gradients_of(run.trace, backward)
    for place, gradient, (begin_ns, end_ns) in zip(
        places(plans[-1], found), found, spans, strict=True
    ):
        # Without copies into the bucket the accumulation's end is nearest to the moment.
        time_ns = begin_ns if backward.copied else end_ns
        if place >= 0:
            yield {
                **_common(it),
                "kind": Kind.GRAD_READY,
                "begin_ns": time_ns,
                "end_ns": time_ns,
                "index": place,
                "bytes": max(gradient.bytes, 0),
                "flags": _SEEN,
            }
