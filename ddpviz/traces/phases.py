"""The parts of every step as the host went through them: forward, backward, finalize, optimizer.

Told from the annotations that DDP and the optimizers set, from autograd's rows, and, where the
trace has Python's functions, from these.
"""

from __future__ import annotations

import bisect
import dataclasses
import re
from collections.abc import Callable

import numpy as np

from ddpviz.traces.columns import Category, Trace, outermost

FORWARD = "DistributedDataParallel.forward"
_NODE = "autograd::engine::evaluate_function: "
ACCUMULATE = f"{_NODE}torch::autograd::AccumulateGrad"
COPIES_IN = ("torch::distributed::reducer::mul_out", "torch::distributed::reducer::copy_")
#: One for each parameter; with batched_grad_copy, from torch 2.15 on, one for each bucket.
COPIES_OUT = (
    "torch.distributed.ddp.reducer::copy_bucket_to_grad",
    "torch.distributed.ddp.reducer::copy_bucket_to_grad_batched",
)
SEARCH = "torch.distributed.ddp.reducer::search_unused_parameters"
_STEP = re.compile(r"^ProfilerStep#(\d{1,9})$")
_OPTIMIZER = re.compile(r"^Optimizer\.step#(.+)\.step$")
_FUNCTION = re.compile(r"(?:^|[/\\])(?P<file>torch[/\\].+\.py)\(\d+\): (?P<function>.+)$")
_BUILTIN = re.compile(r"^<built-in (?:method|function) (?P<function>\w+)")


@dataclasses.dataclass(frozen=True)
class Span:
    """``begin_ns``, ``end_ns``: of the host. ``thread``: position in the trace's threads."""

    begin_ns: int
    end_ns: int
    thread: int


@dataclasses.dataclass(frozen=True)
class Backward:
    """``nodes_end_ns``: where the last gradient had been computed and its hook had returned.
    ``ready_at``: positions of the copies of gradients into buckets, in order; where DDP doesn't
    copy (``copied`` False: bucket views), of the accumulations themselves.
    ``copies``: positions of the copies back. ``whole``: Python's own row told its end.
    ``until_ns``: when the optimizer or the next forward began."""

    span: Span
    nodes_end_ns: int
    ready_at: np.ndarray
    copied: bool
    copies: np.ndarray
    whole: bool
    until_ns: int


@dataclasses.dataclass(frozen=True)
class Iteration:
    """A DDP forward and the backward after it, None where there is none before the next one."""

    number: int
    step: int
    forward: Span
    backward: Backward | None
    searched: bool


@dataclasses.dataclass(frozen=True)
class Optimizer:
    step: int
    name: str
    span: Span


@dataclasses.dataclass(frozen=True)
class Phases:
    """``numbered``: steps bear the profiler's own numbers."""

    iterations: list[Iteration]
    optimizers: list[Optimizer]
    profiler_steps: dict[int, tuple[int, int]]
    numbered: bool

    @property
    def cut(self) -> int:
        """The last step where the trace ends within it: it has a backward and no optimizer, as
        every step before it has; -1 for none."""
        stepped = {one.step for one in self.optimizers}
        last = self.iterations[-1] if self.iterations else None
        if last is None or last.backward is None or last.step in stepped:
            return -1
        before = {one.step for one in self.iterations if one.backward} - {last.step}
        return last.step if before and before <= stepped else -1

    def step_at(self, time_ns: int) -> int:
        """The step that a moment belongs to, -1 for none."""
        if self.numbered:
            return _containing(self.profiler_steps, time_ns)
        if not self.iterations:
            return bisect.bisect_right([one.span.end_ns for one in self.optimizers], time_ns)
        at = bisect.bisect_right([one.forward.begin_ns for one in self.iterations], time_ns)
        return self.iterations[at - 1].step if at else -1


def python_function(name: str) -> tuple[str, str] | None:
    """File (from "torch/" on, "" for a builtin) and function of a Python row; None for another."""
    found = _FUNCTION.search(name)
    if found is not None:
        return found["file"].replace("\\", "/"), found["function"]
    built_in = _BUILTIN.match(name)
    return None if built_in is None else ("", built_in["function"])


def phases(trace: Trace) -> Phases:
    """Everything that is a step's part; empty lists where the trace has no DDP forward."""
    host = (Category.ANNOTATION, Category.OPERATION)
    forwards = outermost(trace, trace.named(lambda name: name == FORWARD, *host))
    optimizers = trace.named(lambda name: _OPTIMIZER.match(name) is not None, *host)
    steps = _profiler_steps(trace)
    numbered = bool(steps)
    ends_ns = sorted(trace.end_ns[optimizers].tolist())

    def step_of(begin_ns: int) -> int:
        if numbered:
            return _containing(steps, begin_ns)
        return bisect.bisect_right(ends_ns, begin_ns)

    numbers = [step_of(int(trace.begin_ns[at])) for at in forwards.tolist()]
    if not numbered and not len(optimizers):
        numbers = list(range(len(forwards)))
    backwards = _backwards(trace, forwards, optimizers)
    searched = trace.begin_ns[trace.named(lambda name: name == SEARCH)]
    iterations = []
    for number, at in enumerate(forwards.tolist()):
        span = _span(trace, at)
        inside = (searched >= span.begin_ns) & (searched <= span.end_ns)
        iterations.append(
            Iteration(number, numbers[number], span, backwards[number], bool(inside.any()))
        )
    found = []
    for at in optimizers.tolist():
        match = _OPTIMIZER.match(trace.text(at))
        name = match[1] if match else ""
        found.append(Optimizer(step_of(int(trace.begin_ns[at])), name, _span(trace, at)))
    return Phases(iterations, found, steps, numbered)


def _backwards(trace: Trace, forwards: np.ndarray, optimizers: np.ndarray) -> list[Backward | None]:
    """Of every forward, what autograd did between it and the next forward or optimizer."""
    nodes = _Rows(trace, lambda name: name.startswith(_NODE))
    accumulated = _Rows(trace, lambda name: name == ACCUMULATE)
    into = _Rows(trace, lambda name: name in COPIES_IN)
    out = _Rows(trace, lambda name: name in COPIES_OUT)
    engine = _Rows(
        trace, lambda name: name.startswith("<built-in method run_backward of"), Category.PYTHON
    )
    edges = np.sort(np.concatenate([trace.begin_ns[forwards], trace.begin_ns[optimizers]]))
    found: list[Backward | None] = []
    for at in forwards.tolist():
        begin_ns = int(trace.end_ns[at])
        after = np.searchsorted(edges, int(trace.begin_ns[at]), side="right")
        until_ns = int(edges[after]) if after < len(edges) else np.iinfo(np.int64).max
        mine = nodes.between(begin_ns, until_ns)
        if not len(mine):
            found.append(None)
            continue
        thread = _commonest(trace.thread[mine])
        copies_in = into.between(begin_ns, until_ns)
        copies_out = out.between(begin_ns, until_ns)
        run = engine.between(begin_ns, until_ns)
        nodes_end_ns = int(trace.end_ns[mine].max())
        end_ns = max(nodes_end_ns, int(trace.end_ns[copies_out].max(initial=0)))
        first_ns = int(trace.begin_ns[mine[0]])
        if len(run):
            first_ns = min(first_ns, int(trace.begin_ns[run[0]]))
            end_ns = max(end_ns, int(trace.end_ns[run].max()))
        ready = copies_in if len(copies_in) else accumulated.between(begin_ns, until_ns)
        found.append(
            Backward(
                Span(first_ns, end_ns, thread),
                nodes_end_ns,
                ready,
                len(copies_in) > 0,
                copies_out,
                len(run) > 0,
                until_ns,
            )
        )
    return found


class _Rows:
    """Positions of some rows, found by when they begin."""

    def __init__(self, trace: Trace, wanted: Callable[[str], bool], *categories: Category) -> None:
        self._positions = trace.named(wanted, *categories)
        self._begins_ns = trace.begin_ns[self._positions]

    def between(self, begin_ns: int, until_ns: int) -> np.ndarray:
        low, high = np.searchsorted(self._begins_ns, (begin_ns, until_ns))
        return self._positions[low:high]


def _commonest(codes: np.ndarray) -> int:
    values, counts = np.unique(codes, return_counts=True)
    return int(values[np.argmax(counts)])


def _profiler_steps(trace: Trace) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for at in trace.named(
        lambda name: _STEP.match(name) is not None, Category.ANNOTATION, Category.OPERATION
    ).tolist():
        match = _STEP.match(trace.text(at))
        number = int(match[1]) if match else 0
        if number < 2**31 - 1:
            found.setdefault(number, (int(trace.begin_ns[at]), int(trace.end_ns[at])))
    return found


def _containing(steps: dict[int, tuple[int, int]], time_ns: int) -> int:
    for number, (begin_ns, end_ns) in steps.items():
        if begin_ns <= time_ns <= end_ns:
            return number
    return -1


def _span(trace: Trace, at: int) -> Span:
    return Span(int(trace.begin_ns[at]), int(trace.end_ns[at]), int(trace.thread[at]))
