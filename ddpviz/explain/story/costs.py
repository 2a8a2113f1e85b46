"""What DDP costs a step, one thing at a time, in plain words."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ddpviz.events import Cause
from ddpviz.explain.story import communicating
from ddpviz.explain.story.cost import Cost, cost_of
from ddpviz.explain.story.facts import Facts
from ddpviz.traces.phases import COPIES_IN, COPIES_OUT, SEARCH


def costs(here: Facts) -> list[Cost]:
    """All of them, the most expensive first, what is not known last."""
    found = [cost for make in _ALL for cost in make(here)]
    return sorted(found, key=lambda cost: (math.isnan(cost.ms), -cost.ms))


def _copies(here: Facts) -> Iterator[Cost]:
    where = (
        "kernels"
        if here.run.on_device
        else "operations of the host"
        if here.run.enqueued
        else "operations"
    )
    for name, rows, sentence in (
        ("copying gradients in", COPIES_IN, "copying gradients into their buckets"),
        ("copying gradients back", COPIES_OUT, "copying reduced gradients back out of them"),
    ):
        ms, count = _copy_ms(here, rows), _copy_count(here, rows)
        if ms > 0:
            change, risk = _VIEWS if not _are_views(here) else _KEPT
            yield cost_of(
                here, name, ms, f"{sentence} takes {{time}}, in {count:.0f} {where}", change, risk
            )


#: What makes copying unnecessary, and what that risks.
_VIEWS = (
    "`gradient_as_bucket_view=True` makes gradients views of their buckets",
    "`detach_()` on a gradient then raises; what holds on to gradients over steps sees them "
    "overwritten",
)
#: The same where gradients are views already: they are made anew in each step.
_KEPT = (
    "`zero_grad(set_to_none=False)`: `gradient_as_bucket_view` is on (nothing is copied back), and "
    "gradients that are kept stay views of their buckets",
    "gradients are then zeroed instead of freed: one more pass over them, and a parameter that got "
    "none is stepped as if its gradient were 0",
)


def _are_views(here: Facts) -> bool:
    """Whether buckets were reduced and nothing copied back out of them."""
    reduced = [one.iteration.backward for one in here.run.reductions]
    return bool(reduced) and not any(len(one.copies) for one in reduced if one is not None)


def _copy_ms(here: Facts, rows: tuple[str, ...]) -> float:
    """Per step: of the kernels on a GPU, else of the rows."""
    at = _in_steps(here, rows)
    trace = here.run.trace
    if here.run.on_device:
        total = here.run.kernels.busy_ns(
            trace.begin_ns[at], trace.end_ns[at], trace.thread[at].astype(np.int64)
        )
    else:
        total = int((trace.end_ns[at] - trace.begin_ns[at]).sum())
    return total / 1e6 / max(len(here.steps), 1)


def _copy_count(here: Facts, rows: tuple[str, ...]) -> float:
    return len(_in_steps(here, rows)) / max(len(here.steps), 1)


def _in_steps(here: Facts, rows: tuple[str, ...]) -> np.ndarray:
    trace, steps = here.run.trace, set(here.steps)
    at = trace.named(lambda name: name in rows)
    inside = np.zeros(len(at), bool)
    for it in here.run.phases.iterations:
        if it.step in steps:
            end_ns = it.backward.span.end_ns if it.backward else it.forward.end_ns
            begins = trace.begin_ns[at]
            inside |= (begins >= it.forward.begin_ns) & (begins <= end_ns)
    return at[inside]


def _unused(here: Facts) -> Iterator[Cost]:
    at = _in_steps(here, (SEARCH,))
    if not len(at):
        return
    trace = here.run.trace
    searched_ns = int((trace.end_ns[at] - trace.begin_ns[at]).sum())
    maps = [one for one in here.run.collectives if one.cause == Cause.USED_MAP]
    also = " and one more all-reduce says which were used" if maps else ""
    yield cost_of(
        here,
        "searching unused parameters",
        searched_ns / 1e6 / max(len(here.steps), 1),
        f"every forward searches the graph for unused parameters, {{time}} of the host,{also}",
        "`find_unused_parameters=False` where every parameter is used in every step",
        "a parameter without a gradient then makes the next forward raise",
    )


def _idle(here: Facts) -> Iterator[Cost]:
    if not here.run.on_device or not here.share.window_ns:
        return
    idle = here.share.other_ns / here.share.window_ns
    if idle > 0.3:
        yield cost_of(
            here,
            "an idle GPU",
            idle * here.step_ms,
            "the GPU has nothing to run for {time}: the host hands work over more slowly than the "
            "GPU does it; that is not DDP's doing, but no bucket setting helps while it is so",
            "a larger batch, `torch.compile`, CUDA graphs, less Python per step",
            "a larger batch changes training; compiled, gradients may all come at once, so that "
            "buckets overlap less",
        )


def _between(here: Facts) -> Iterator[Cost]:
    rank = here.run.rank
    between_ms = here.gaps_ms.get(rank, math.nan)
    if not between_ms > 0.03 * here.step_ms:
        return
    others = "" if len(here.imported.runs) > 1 else "; other ranks may wait for it"
    for one in here.skews:
        if one.late == rank:
            others = "; the other ranks wait for it at their next collective"
    yield cost_of(
        here,
        "between steps",
        between_ms,
        f"{{time}} go by between the optimizer's end and the next forward, beside any collective: "
        f"loading data, logging, or what else the loop does{others}",
        "load batches ahead (`num_workers`, `pin_memory`)",
        "none to DDP",
    )


_ALL = (
    communicating.for_another,
    communicating.accumulating,
    communicating.waiting,
    communicating.buffers,
    communicating.not_ddps,
    _copies,
    _unused,
    _idle,
    _between,
)
