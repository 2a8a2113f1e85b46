"""One rank's trace, examined: its steps, its collectives and why, its buckets, on which clock."""

from __future__ import annotations

import collections
import dataclasses

import numpy as np

from ddpviz.events import Cause
from ddpviz.traces.buckets import Layout, Reduction, layouts, reductions
from ddpviz.traces.causes import Caused, causes
from ddpviz.traces.columns import Category, Trace
from ddpviz.traces.comms import collectives, is_kernel
from ddpviz.traces.device import Kernels, kernels
from ddpviz.traces.errors import TraceError
from ddpviz.traces.phases import Phases, Span, phases
from ddpviz.traces.reading import RankTrace


@dataclasses.dataclass(frozen=True)
class Run:
    """``on_device``: spans and collectives are told as the GPU's streams ran them, not as the
    host enqueued them. ``enqueued``: collectives were handed to NCCL, and the trace has no GPU's
    side, or doesn't say who launched what of it: how long the host's work took is not known."""

    rank: int
    world_size: int
    trace: Trace
    phases: Phases
    collectives: list[Caused]
    reductions: list[Reduction]
    layouts: list[Layout]
    kernels: Kernels
    on_device: bool
    enqueued: bool
    has_kernels: bool

    @property
    def unlinked(self) -> bool:
        """Whether the trace has kernels, and nothing in it says who launched them."""
        return self.has_kernels and not self.on_device

    def spans(self, of: list[Span]) -> list[tuple[int, int]]:
        """Begin and end of each of the host's spans on this run's clock; (0, 0) for one that
        launched nothing on the GPU. They are in order, none inside another."""
        if not self.on_device:
            return [(one.begin_ns, one.end_ns) for one in of]
        first, last = self.kernels.spans(
            np.array([one.begin_ns for one in of], np.int64),
            np.array([one.end_ns for one in of], np.int64),
            np.array([one.thread for one in of], np.int64),
        )
        return list(zip(first.tolist(), last.tolist(), strict=True))

    def during(self, calls: list[Caused]) -> tuple[int, int]:
        """From the first begin to the last end of some collectives, (0, 0) for none of them: on
        the host from their launch on, and not before the launching call was back."""
        told = [one.collective for one in calls]
        if self.on_device:
            begins, ends = [one.begin_ns for one in told], [one.end_ns for one in told]
        else:
            begins = [one.launch_ns for one in told]
            ends = [max(one.end_ns, one.launched_ns) for one in told]
        return min(begins, default=0), max(ends, default=0)

    def numbers(self) -> list[tuple[str, int, int]]:
        """What is the same for a collective on every rank: its group, its step, its number among
        the step's in that group."""
        counted: collections.Counter[tuple[str, int]] = collections.Counter()
        found = []
        for one in self.collectives:
            key = one.collective.group, one.step
            found.append((*key, counted[key]))
            counted[key] += 1
        return found


def examine(one: RankTrace) -> Run:
    """Raises :class:`TraceError` for a trace with neither steps nor collectives in it."""
    trace = one.trace
    parts = phases(trace)
    caused = causes(trace, collectives(trace), parts)
    if not caused and not parts.iterations and not parts.profiler_steps:
        raise TraceError(
            f"found no DDP forward, no collective and no profiler step in {trace.path}, expected "
            "a trace of distributed training: trace some whole steps of it"
        )
    launched = kernels(trace)
    ran = any(one.collective.begin_ns for one in caused)
    has_kernels = bool((trace.category == Category.KERNEL).any())
    on_device = len(launched) > 0 and has_kernels
    handed_over = any(name.startswith("nccl:") or is_kernel(name) for name in trace.names)
    reduced = reductions(trace, parts.iterations, caused)
    rebuilt = {one.iteration for one in caused if one.cause == Cause.REBUILD_ORDER}
    return Run(
        rank=one.rank,
        world_size=one.world_size,
        trace=trace,
        phases=parts,
        collectives=caused,
        reductions=reduced,
        layouts=layouts([one for one in reduced if one.iteration.step != parts.cut], rebuilt),
        kernels=launched,
        on_device=on_device,
        enqueued=handed_over and not (ran and on_device),
        has_kernels=has_kernels,
    )
