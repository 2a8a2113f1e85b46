"""A module's compiled graphs at a moment: who reduces, what is split, what comes in a burst."""

from __future__ import annotations

import dataclasses

from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import SHARED_ID
from ddpviz.analysis.units import format_bytes
from ddpviz.events import Compiled, Graph, Module, Split

_REDUCES = {
    "Python": "python_reducer reduces: each gradient by a hook of its own, which compiled autograd "
    "has traced into the compiled backward",
    "one by one": "python_reducer reduces: each gradient by a hook of its own, which waits for it, "
    "as compiled autograd is off",
    "ddp_optimizer": "the C++ Reducer reduces, bucket by bucket, as the subgraphs' backwards hand "
    "their gradients over",
    "whole": "the C++ Reducer reduces, all buckets one after another, once the one backward of the "
    "whole graph has ended",
    "eager": "the C++ Reducer reduces, bucket by bucket, as backward goes on",
}
_DROPPED = "no sync of buffers, no Join, no move of inputs to the device"


@dataclasses.dataclass(frozen=True)
class OfModule:
    """Of one rank's module. ``graphs``: of role "forward" in the order they came, with the split
    of each, where DDPOptimizer had it."""

    rank: int
    module: Module
    compiled: tuple[Compiled, ...]
    graphs: tuple[Graph, ...]
    splits: dict[int, Split]

    def at(self, time_ns: int) -> Compiled | None:
        """How it was compiled by then; None for eager."""
        before = [one for one in self.compiled if one.time_ns <= time_ns]
        return before[-1] if before else None

    def in_force(self, time_ns: int) -> list[Graph]:
        """The graphs by then, of each frame the latest."""
        latest: dict[str, Graph] = {}
        for graph in self.graphs:
            if graph.time_ns <= time_ns and graph.arguments:
                latest[graph.compile_id.partition("/")[0]] = graph
        return list(latest.values())

    def split(self, graph: Graph) -> bool:
        """Whether DDPOptimizer made several of it."""
        found = self.splits.get(graph.id)
        return found is not None and len(found.parts) > 1

    def burst(self, time_ns: int) -> str:
        """Why all gradients come at once in a backward at this time, "" where they do not."""
        how = self.at(time_ns)
        if how is None or how.reducer == "Python":
            return ""
        graphs = self.in_force(time_ns)
        if not graphs:
            if how.order == "compile then wrap":
                return (
                    "the model was compiled and run before DDP was put around it, so its graph "
                    "of then is used, whole"
                )
            return ""
        if len(graphs) > 1 or self.split(graphs[0]):
            return ""
        wanted = set(range(len(self.module.parameters)))
        if wanted - {one.parameter for one in graphs[0].arguments}:
            return ""
        return f"the model is one compiled graph, so its backward is one node{self._why_whole(how)}"

    def _why_whole(self, how: Compiled) -> str:
        graph = self.graphs[-1]
        split = self.splits.get(graph.id)
        if split is not None:
            limit = format_bytes(split.first_cap_bytes)
            return f": DDPOptimizer found no place to split it, with a first limit of {limit}"
        return f" ({how.optimize_ddp} does not split it)"

    def who_reduces(self, time_ns: int) -> str:
        """In one sentence."""
        how = self.at(time_ns)
        if how is None:
            return _REDUCES["eager"]
        if how.reducer == "Python":
            return _REDUCES["Python" if how.compiled_autograd else "one by one"]
        return _REDUCES["whole" if self.burst(time_ns) else "ddp_optimizer"]

    def dropped(self, time_ns: int) -> str:
        """What this mode silently leaves out, "" for nothing."""
        how = self.at(time_ns)
        return _DROPPED if how is not None and how.reducer == "Python" else ""


def modules(source: Source, rank: int) -> list[OfModule]:
    """Every module of a rank, in the order of their ids."""
    compiled = source.notes(Compiled, rank=rank)
    graphs = [one for one in source.notes(Graph, rank=rank) if one.role == "forward"]
    splits = {one.graph: one for one in source.notes(Split, rank=rank)}
    return [
        OfModule(
            rank,
            module,
            tuple(one for one in compiled if one.module == module.id),
            tuple(one for one in graphs if one.module == module.id),
            splits,
        )
        for module in sorted(source.notes(Module, rank=rank), key=lambda one: one.id)
        if module.id < SHARED_ID
    ]
