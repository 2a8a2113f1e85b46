"""What a rank's backwards have in common: how often a step reduces, and out of how many graphs."""

from __future__ import annotations

import collections

import numpy as np

from ddpviz.traces.buckets import Reduction
from ddpviz.traces.runs import Run

_COMPILED = "autograd::engine::evaluate_function: CompiledFunctionBackward"


def signature(one: Reduction) -> tuple[int, int]:
    """Gradients, and bytes sent: the same in all backwards of a module."""
    return len(one.iteration.backward.ready_at) if one.iteration.backward else 0, sum(one.sizes)


def repeated(run: Run) -> int:
    """How often most steps reduce the same gradients before their one optimizer's step."""
    steppers = collections.Counter(one.step for one in run.phases.optimizers)
    times: dict[int, collections.Counter[tuple[int, int]]] = {}
    for one in run.reductions:
        counted = times.setdefault(one.iteration.step, collections.Counter())
        counted[signature(one)] += 1
    found = [
        max(counted.values())
        for step, counted in times.items()
        if step >= 0 and steppers.get(step) == 1
    ]
    return int(np.median(found)) if found else 0


def modules(run: Run) -> list[tuple[int, int]]:
    """The signatures that most steps have, each of another module: one where there is one."""
    steps: dict[tuple[int, int], set[int]] = collections.defaultdict(set)
    for one in run.reductions:
        steps[signature(one)].add(one.iteration.step)
    whole = {one.iteration.step for one in run.reductions}
    return [key for key, mine in steps.items() if 2 * len(mine) > len(whole)]


def one_backward(run: Run) -> bool:
    """Whether each backward's gradients came out of one compiled graph, all of them after it."""
    at = run.trace.named(lambda name: name == _COMPILED)
    begins, ends = run.trace.begin_ns[at], run.trace.end_ns[at]
    found = []
    for one in run.reductions:
        backward = one.iteration.backward
        if backward is None or not len(backward.ready_at):
            continue
        inside = (begins >= backward.span.begin_ns) & (begins <= backward.span.end_ns)
        ready_ns = int(run.trace.begin_ns[backward.ready_at].min())
        found.append(int(inside.sum()) == 1 and int(ends[inside].max()) <= ready_ns)
    return bool(found) and all(found)
