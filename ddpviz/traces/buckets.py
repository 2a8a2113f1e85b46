"""Bucket plans that nobody recorded, inferred from what each backward launched and copied."""

from __future__ import annotations

import collections
import dataclasses

import numpy as np

from ddpviz.traces.causes import Caused
from ddpviz.traces.columns import Trace
from ddpviz.traces.comms import dtype_of, elements_of
from ddpviz.traces.phases import Backward, Iteration


@dataclasses.dataclass(frozen=True)
class Gradient:
    """What is known of one: ``dims`` () and ``bytes`` -1 where the trace has no shapes."""

    dims: tuple[int, ...]
    dtype: str
    bytes: int


@dataclasses.dataclass(frozen=True)
class Reduction:
    """What one backward shows of its buckets. ``sizes``: bytes by launch order, -1 unknown.
    ``counts``: gradients per bucket, () where they can't be told apart. ``evidence``: what tells
    them. ``gradients``: in the buckets' order."""

    iteration: Iteration
    sizes: tuple[int, ...]
    counts: tuple[int, ...]
    evidence: str
    gradients: tuple[Gradient, ...]


@dataclasses.dataclass(frozen=True)
class Layout:
    """A plan: from which iteration on, and what most of its backwards showed."""

    iteration: int
    sizes: tuple[int, ...]
    counts: tuple[int, ...]
    evidence: str
    gradients: tuple[Gradient, ...]


ADD_UP = "the shapes of the copies back add up to each bucket's bytes"
BETWEEN = "gradients copied in before each launch, counted"


def reductions(trace: Trace, iterations: list[Iteration], caused: list[Caused]) -> list[Reduction]:
    """One for each backward that reduced buckets."""
    launched: dict[int, list[Caused]] = collections.defaultdict(list)
    for one in caused:
        if one.bucket >= 0:
            launched[one.iteration].append(one)
    return [
        _reduction(trace, it, it.backward, sorted(launched[it.number], key=lambda c: c.bucket))
        for it in iterations
        if it.backward is not None and launched.get(it.number)
    ]


def _reduction(
    trace: Trace, iteration: Iteration, backward: Backward, launched: list[Caused]
) -> Reduction:
    sizes = tuple(one.collective.bytes for one in launched)
    back = [_gradient(trace, at) for at in backward.copies.tolist()]
    counts = _adding_up(sizes, back)
    if counts:
        return Reduction(iteration, sizes, counts, ADD_UP, tuple(back))
    ready = [_gradient(trace, at) for at in backward.ready_at.tolist()]
    edges = [one.collective.launch_ns for one in launched]
    before = np.searchsorted(trace.begin_ns[backward.ready_at], edges, side="left")
    told = np.diff(before, prepend=0)
    counts = tuple(told.tolist()) if len(told) and (told > 0).all() else ()
    if sum(counts) != len(ready):
        counts = ()  # gradients came after the last launch: those of another module
    return Reduction(iteration, sizes, counts, BETWEEN if counts else "", tuple(ready))


def _adding_up(sizes: tuple[int, ...], back: list[Gradient]) -> tuple[int, ...]:
    """How many of the gradients copied back, bucket by bucket, fill each; () if they don't."""
    if not back or min(sizes) < 0 or min(one.bytes for one in back) < 0:
        return ()
    counts, at = [], 0
    for size in sizes:
        begin, filled = at, 0
        while at < len(back) and filled < size:
            filled += back[at].bytes
            at += 1
        if filled != size:
            return ()
        counts.append(at - begin)
    return tuple(counts) if at == len(back) else ()


def _gradient(trace: Trace, at: int) -> Gradient:
    told = trace.details.get(at)
    if told is None or not isinstance(told.dims, list) or not told.dims:
        return Gradient((), "", -1)
    dims, (dtype, size) = told.dims[0], dtype_of(told)
    elements = 1 if dims == [] else elements_of(dims)
    if elements < 0 or not size or not all(isinstance(one, int) for one in dims):
        return Gradient((), dtype, -1)
    return Gradient(tuple(dims), dtype, elements * size)


def layouts(found: list[Reduction], rebuilt: set[int]) -> list[Layout]:
    """A plan for each stretch of backwards that launched the same buckets.

    ``rebuilt``: iterations in which DDP told ranks a new order: a plan begins there, though its
    first backward may come later.
    """
    plans: list[Layout] = []
    stretch: list[Reduction] = []
    begins = 0
    for one in found:
        before = stretch[-1].iteration.number if stretch else -1
        news = [at for at in rebuilt if before < at <= one.iteration.number]
        if stretch and (news or one.sizes != stretch[-1].sizes):
            plans.append(_layout(stretch, begins))
            stretch = []
        if not stretch:
            begins = min([*news, one.iteration.number])
        stretch.append(one)
    return [*plans, _layout(stretch, begins)] if stretch else plans


def _layout(stretch: list[Reduction], begins: int) -> Layout:
    usual = collections.Counter(one.counts for one in stretch if one.counts).most_common(1)
    counts = usual[0][0] if usual else ()
    shown = next((one for one in stretch if one.counts == counts), stretch[0])
    return Layout(
        begins,
        stretch[0].sizes,
        counts,
        shown.evidence,
        shown.gradients if counts else (),
    )


def places(layout: Layout, ready: list[Gradient]) -> list[int]:
    """For each gradient as it became ready, its number in the plan's order; -1 if none fits.

    Those of a shape are taken in order: which of several equal ones came first isn't known.
    """
    if not layout.counts:
        return [-1] * len(ready)
    if any(one.bytes < 0 for one in (*ready, *layout.gradients)):
        same = len(ready) == len(layout.gradients)
        return list(range(len(ready))) if same else [-1] * len(ready)
    free: dict[tuple[int, ...], collections.deque[int]] = collections.defaultdict(collections.deque)
    for number, one in enumerate(layout.gradients):
        free[one.dims].append(number)
    return [free[one.dims].popleft() if free[one.dims] else -1 for one in ready]


def gradients_of(trace: Trace, backward: Backward) -> list[Gradient]:
    """Of a backward's gradients as they became ready."""
    return [_gradient(trace, at) for at in backward.ready_at.tolist()]
