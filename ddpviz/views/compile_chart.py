"""What the view *compile* is drawn from: a rank's graphs, its buckets and collectives of a step."""

from __future__ import annotations

import dataclasses

import numpy as np

from ddpviz.analysis.calls import calls, of_buckets
from ddpviz.analysis.compiled import OfModule, modules
from ddpviz.analysis.graph_borders import missed_borders
from ddpviz.analysis.graphs import latest_parts
from ddpviz.analysis.source import Source
from ddpviz.events import Bucket, Cause, Compiled, Flag, Graph, Kind, Plan


@dataclasses.dataclass(frozen=True)
class Sent:
    """A collective of the backward. ``ready_ms``: when the first gradient of its bucket was there,
    NaN where it has none; ``done_ms``: NaN where its end is not known. From the backward's begin.
    """

    number: int
    bytes: int
    ready_ms: float
    launched_ms: float
    done_ms: float


@dataclasses.dataclass(frozen=True)
class Chart:
    """Of one rank and one DDP module in a step.

    ``forward``: graphs in the order of the forward; ``backward``: those of compiled autograd, else
    none. ``buckets``: of the plan in force, in launch order; empty for python_reducer. ``ready``:
    ms of each parameter's gradient. ``broadcasts``: of buffers in the step's forwards, and their
    bytes. ``end_ms``: of the last gradient or collective. ``enqueued``: collectives end, for the
    host, as they are handed to the GPU.
    """

    rank: int
    of: OfModule
    how: Compiled
    time_ns: int
    forward: tuple[Graph, ...]
    backward: tuple[Graph, ...]
    buckets: tuple[Bucket, ...]
    sent: tuple[Sent, ...]
    ready: dict[int, float]
    broadcasts: tuple[int, int]
    end_ms: float
    enqueued: bool

    @property
    def python(self) -> bool:
        """Whether the Reducer has nothing to do."""
        return self.how.reducer == "Python"

    def name(self, parameter: int) -> str:
        """A parameter's."""
        known = self.of.module.parameters
        return known[parameter].name if parameter < len(known) else f"parameter {parameter}"

    def graphs_of(self, bucket: int) -> list[int]:
        """Places in the forward of the graphs that share parameters with a bucket."""
        wanted = {*self.buckets[bucket].parameters}
        return [place for place, graph in enumerate(self.forward) if wanted & inside(graph)]

    @property
    def missed(self) -> list[int]:
        """Buckets after which a graph goes on."""
        return missed_borders(
            [inside(graph) for graph in self.forward],
            [bucket.parameters for bucket in self.buckets],
        )


def inside(graph: Graph) -> set[int]:
    """Parameters of a graph."""
    return {one.parameter for one in graph.arguments}


def chart_of(source: Source, step: int) -> Chart | None:
    """Of the lowest rank that has it, and its largest compiled module; None where none is."""
    for rank in source.ranks:
        forward = source.records(kinds=Kind.FORWARD, ranks=rank, steps=step)
        found = []
        for of in modules(source, rank):
            mine = forward[forward["module"] == of.module.id]
            how = of.at(int(mine["end_ns"].max())) if len(mine) else None
            if how is not None:
                found.append((sum(one.bytes for one in of.module.parameters), of, how, mine))
        if found:
            _, of, how, mine = max(found, key=lambda one: one[0])
            return _chart(source, step, rank, of, how, mine)
    return None


def _chart(
    source: Source, step: int, rank: int, of: OfModule, how: Compiled, forward: np.ndarray
) -> Chart:
    module, until_ns = of.module.id, _until_ns(source, step, rank)
    iteration = int(forward["iteration"].max())
    python = how.reducer == "Python"
    plans = [
        plan
        for plan in source.notes(Plan, rank=rank)
        if plan.module == module and plan.iteration <= iteration
    ]
    buckets = () if python or not plans else max(plans, key=lambda plan: plan.version).buckets
    zero_ns, without = _begin_ns(source, step, rank, forward), of.without_gradient(iteration)
    ready = {
        int(one["index"]): (int(one["begin_ns"]) - zero_ns) / 1e6
        for one in _mine(source, Kind.GRAD_READY, step, rank, module)
        if one["begin_ns"] >= zero_ns and one["index"] not in without
    }
    every = calls(source, step)
    every = every[(every["rank"] == rank) & (every["module"] == module)]
    reduced = every[every["cause"] == Cause.PYTHON_REDUCER] if python else of_buckets(every)
    reduced = reduced[reduced["begin_ns"] >= zero_ns]
    sent = tuple(_sent(one, zero_ns, buckets, ready) for one in reduced)
    synced = every[every["cause"] == Cause.BUFFERS]
    backward = [
        note
        for note in source.notes(Graph, rank=rank)
        if note.module == module and note.role == "backward" and note.time_ns <= until_ns
    ]
    ends = [max(one.launched_ms, one.done_ms) for one in sent if one.done_ms == one.done_ms]
    ends += [one.launched_ms for one in sent] + list(ready.values())
    return Chart(
        rank,
        of,
        how,
        until_ns,
        tuple(latest_parts(source, rank, module, until_ns)),
        tuple(backward[-1:]),
        tuple(buckets),
        tuple(sorted(sent, key=lambda one: one.launched_ms)),
        ready,
        (len(synced), int(synced["bytes"].sum())),
        max(ends, default=0.0),
        bool((reduced["flags"] & Flag.ENQUEUED).any()),
    )


def _sent(
    call: np.void, zero_ns: int, buckets: tuple[Bucket, ...], ready: dict[int, float]
) -> Sent:
    number, end_ns = int(call["index"]), int(call["end_ns"])
    parameters = buckets[number].parameters if number < len(buckets) else ()
    first = min((ready[one] for one in parameters if one in ready), default=float("nan"))
    return Sent(
        number,
        int(call["bytes"]),
        first,
        (int(call["begin_ns"]) - zero_ns) / 1e6,
        (end_ns - zero_ns) / 1e6 if end_ns else float("nan"),
    )


def _begin_ns(source: Source, step: int, rank: int, forward: np.ndarray) -> int:
    """Of the last backward in the step; without one, of what comes after its last forward."""
    backward = source.records(kinds=Kind.BACKWARD, ranks=rank, steps=step)
    return int(backward["begin_ns"].max() if len(backward) else forward["end_ns"].max())


def _until_ns(source: Source, step: int, rank: int) -> int:
    every = source.records(ranks=rank, steps=step)
    return int(max(every["begin_ns"].max(), every["end_ns"].max()))


def _mine(source: Source, kind: Kind, step: int, rank: int, module: int) -> np.ndarray:
    found = source.records(kinds=kind, ranks=rank, steps=step)
    mine: np.ndarray = found[found["module"] == module]
    return mine
