"""Where each rank's time went: computing, communicating behind it, communicating alone, neither."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from ddpviz.traces.columns import Category
from ddpviz.traces.comms import is_kernel
from ddpviz.traces.runs import Run

#: Rows of the dispatcher and of autograd that hold others, or only hand work over.
_NO_COMPUTATION = ("c10d::", "_c10d_functional::", "record_param_comms", "nccl:")


@dataclasses.dataclass(frozen=True)
class Share:
    """Times in ns of a rank within a window. ``compute_ns + exposed_ns + other_ns`` is the whole
    window; ``hidden_ns`` is the part of computing during which a collective was running too.

    On a GPU computing is any kernel but NCCL's (copies between memories are other); without one
    it is any of torch's operations. Communicating is NCCL's kernels, or gloo's own threads. Where
    the trace has none of what its collectives ran as, all but computing is NaN, and where that
    was on a GPU, computing too.
    """

    rank: int
    window_ns: int
    compute_ns: float
    hidden_ns: float
    exposed_ns: float
    other_ns: float

    @property
    def overlap(self) -> float:
        """Hidden share of all communication, NaN where there was none."""
        communication_ns = self.hidden_ns + self.exposed_ns
        return self.hidden_ns / communication_ns if communication_ns else math.nan


def share(run: Run, begin_ns: int | None = None, end_ns: int | None = None) -> Share:
    """Of a rank between two moments of its own trace's clock; by default of all that ran."""
    computing, communicating = busy(run)
    seen = len(communicating) > 0 or not run.collectives
    both = merged(np.concatenate([computing, communicating]))
    low = begin_ns if begin_ns is not None else int(both[:, 0].min(initial=2**62))
    high = end_ns if end_ns is not None else int(both[:, 1].max(initial=0))
    computing, communicating, both = (
        np.clip(spans, low, max(low, high)) for spans in (computing, communicating, both)
    )
    compute_ns, communication_ns, either_ns = map(covered, (computing, communicating, both))
    window_ns = max(high - low, 0)
    if not seen:
        compute = math.nan if run.enqueued and not run.has_kernels else float(compute_ns)
        return Share(run.rank, window_ns, compute, math.nan, math.nan, math.nan)
    return Share(
        run.rank,
        window_ns,
        compute_ns,
        compute_ns + communication_ns - either_ns,
        either_ns - compute_ns,
        window_ns - either_ns,
    )


def busy(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """When it computed and when it communicated: begins and ends, merged and in order."""
    trace = run.trace
    if run.has_kernels:
        kernel = trace.category == Category.KERNEL
        sends = np.zeros(len(trace), bool)
        sends[trace.named(is_kernel, Category.KERNEL)] = True
        return _spans(run, np.flatnonzero(kernel & ~sends)), _spans(run, np.flatnonzero(sends))
    sends_at = trace.named(lambda name: name.startswith("gloo:"))
    computes_at = trace.named(lambda name: not name.startswith(_NO_COMPUTATION), Category.OPERATION)
    own_threads = np.unique(trace.thread[sends_at])
    computes_at = computes_at[~np.isin(trace.thread[computes_at], own_threads)]
    return _spans(run, computes_at), _spans(run, sends_at)


def _spans(run: Run, at: np.ndarray) -> np.ndarray:
    return merged(np.stack([run.trace.begin_ns[at], run.trace.end_ns[at]], axis=1))


def merged(spans: np.ndarray) -> np.ndarray:
    """Spans (n, 2) that overlap or touch made one, in order."""
    if not len(spans):
        return spans.reshape(0, 2)
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    reached = np.maximum.accumulate(spans[:, 1])
    first = np.ones(len(spans), bool)
    first[1:] = spans[1:, 0] > reached[:-1]
    starts = np.flatnonzero(first)
    ends = np.append(starts[1:] - 1, len(spans) - 1)
    return np.stack([spans[starts, 0], reached[ends]], axis=1)


def covered(spans: np.ndarray) -> int:
    """Total length of spans that do not overlap."""
    return int((spans[:, 1] - spans[:, 0]).sum())
