"""A module's compiled graphs at a moment: who reduces, what is split, what comes in a burst."""

from __future__ import annotations

import dataclasses

from ddpviz.analysis.graph_breaks import of_model, told
from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import SHARED_ID
from ddpviz.analysis.units import format_bytes
from ddpviz.events import Compiled, Graph, GraphBreak, Module, Split, Unused

_REDUCES = {
    "Python": "python_reducer reduces: each gradient by a hook of its own, which compiled autograd "
    "has traced into the compiled backward",
    "one by one": "python_reducer reduces: each gradient by a hook of its own, which waits for it, "
    "as compiled autograd is off",
    "ddp_optimizer": "the C++ Reducer reduces, bucket by bucket, as the subgraphs' backwards hand "
    "their gradients over",
    "graphs": "the C++ Reducer reduces, bucket by bucket, as the backwards of the compiled graphs "
    "hand their gradients over",
    "part": "the C++ Reducer reduces, bucket by bucket: the one backward of the compiled graph "
    "hands its gradients over at once, those of parameters that are not in it come one by one",
    "whole": "the C++ Reducer reduces, all buckets one after another, once the one backward of the "
    "whole graph has ended",
    "eager": "the C++ Reducer reduces, bucket by bucket, as backward goes on",
}
#: A backend that compiles no backward: autograd goes through its graph node by node.
_NO_BACKWARD = "eager"
_DROPPED = "no sync of buffers, no Join, no move of inputs to the device"


@dataclasses.dataclass(frozen=True)
class OfModule:
    """Of one rank's module. ``graphs``: of role "forward" in the order they came, with the split
    of each, where DDPOptimizer had it. ``breaks``: in the model's forward, not in DDP's own."""

    rank: int
    module: Module
    compiled: tuple[Compiled, ...]
    graphs: tuple[Graph, ...]
    splits: dict[int, Split]
    breaks: tuple[GraphBreak, ...] = ()
    unused: tuple[Unused, ...] = ()

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

    def without_gradient(self, iteration: int | None = None) -> set[int]:
        """Parameters that get none on this rank in an iteration (None: in the last), as far as the
        Reducer was asked to find that out."""
        found = [one for one in self.unused if iteration is None or one.iteration <= iteration]
        return set(found[-1].parameters) if found else set()

    def outside(self, graphs: list[Graph], iteration: int | None = None) -> set[int]:
        """Parameters that get a gradient and are in none of these graphs."""
        inside = {one.parameter for graph in graphs for one in graph.arguments}
        wanted = set(range(len(self.module.parameters)))
        return wanted - inside - self.without_gradient(iteration)

    def burst(self, time_ns: int, iteration: int | None = None) -> str:
        """Why all gradients come at once in a backward at this time, "" where they do not."""
        how = self.at(time_ns)
        if how is None or how.reducer == "Python" or how.backend == _NO_BACKWARD:
            return ""
        graphs = self.in_force(time_ns)
        if not graphs:
            broken = any(one.time_ns <= time_ns for one in self.breaks)
            if how.order == "compile then wrap" and not broken and not how.passed_over:
                return (
                    "the model was compiled and run before DDP was put around it, so its graph "
                    "of then is used, whole"
                )
            return ""
        if len(graphs) > 1 or self.split(graphs[0]):
            return ""
        if self.outside(graphs, iteration):
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
        if self.burst(time_ns):
            return _REDUCES["whole"]
        graphs = self.in_force(time_ns) if how.backend != _NO_BACKWARD else []
        if any(self.split(graph) for graph in graphs):
            return _REDUCES["ddp_optimizer"]
        return _REDUCES[("eager", "part", "graphs")[min(len(graphs), 2)]]

    def how_split(self, time_ns: int, subgraphs: int) -> str:
        """Whether and why a forward is split: in so many subgraphs by DDPOptimizer, in graphs by
        what Dynamo broke off at, not at all; or why nothing was compiled."""
        how, graphs = self.at(time_ns), self.in_force(time_ns)
        if subgraphs:
            several = f", of {len(graphs)} graphs{self._why_several(how)}" if graphs[1:] else ""
            return f"split into {subgraphs} subgraphs by DDPOptimizer{several}"
        if burst := self.burst(time_ns):
            return f"not split: {burst}"
        if len(graphs) > 1:
            several = f"the model is {len(graphs)} compiled graphs{self._why_several(how)}"
            return f"not split by DDPOptimizer: {several}"
        if graphs and how is not None and how.backend == _NO_BACKWARD:
            return f"not split; its backend {_NO_BACKWARD!r} leaves the backward to autograd"
        if graphs and how is not None and how.reducer == "Python":
            return "not split: DDPOptimizer has nothing to do with python_reducer"
        if graphs:
            number, every = len(self.outside(graphs)), len(self.module.parameters)
            missing = f"{number} of {every} parameters are not in the one compiled graph"
            return f"not split: {missing}{self._why_several(how)}"
        if self.graphs:
            return "not split: no compiled graph has a parameter of the model"
        if how is not None and how.passed_over:
            over = f"Dynamo passes over the model's forward, as {how.passed_over}"
            return f"nothing was compiled: {over}"
        if self.breaks:
            return f"nothing was compiled: {told(self.breaks[-1])}"
        return ""

    def _why_several(self, how: Compiled | None) -> str:
        if self.breaks:
            more = f" and {len(self.breaks) - 1} more" if self.breaks[1:] else ""
            return f", from {told(self.breaks[0])}{more}"
        if how is not None and how.passed_over:
            return f", as Dynamo passes over the model's own forward: {how.passed_over}"
        return ""

    def dropped(self, time_ns: int) -> str:
        """What this mode silently leaves out, "" for nothing."""
        how = self.at(time_ns)
        return _DROPPED if how is not None and how.reducer == "Python" else ""


def modules(source: Source, rank: int) -> list[OfModule]:
    """Every module of a rank, in the order of their ids."""
    compiled = source.notes(Compiled, rank=rank)
    graphs = [one for one in source.notes(Graph, rank=rank) if one.role == "forward"]
    splits = {one.graph: one for one in source.notes(Split, rank=rank)}
    breaks, unused = source.notes(GraphBreak, rank=rank), source.notes(Unused, rank=rank)
    return [
        OfModule(
            rank,
            module,
            tuple(one for one in compiled if one.module == module.id),
            tuple(one for one in graphs if one.module == module.id),
            splits,
            of_model(one for one in breaks if one.module == module.id),
            tuple(one for one in unused if one.module == module.id),
        )
        for module in sorted(source.notes(Module, rank=rank), key=lambda one: one.id)
        if module.id < SHARED_ID
    ]
