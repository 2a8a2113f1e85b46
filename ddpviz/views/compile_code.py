"""The readable code of compiled graphs, with the names of a DDP module's parameters."""

from __future__ import annotations

from ddpviz.analysis.source import Source
from ddpviz.events import Graph, Module
from ddpviz.views.live import LONGEST_READING

#: Parameters named above a graph's code.
_MOST_NAMES = 200


def key_of(source: Source, rank: int, graph: Graph) -> str:
    """The key of a graph's code: its rank, and its place among what that has compiled."""
    return f"{rank}/{source.notes(Graph, rank=rank).index(graph)}"


def code_of(source: Source, key: str) -> str:
    """Names of the parameters, and below them the code. Raises LookupError."""
    rank, _, place = key.partition("/")
    if not (rank.isdecimal() and place.isdecimal()):
        raise LookupError(f"found no graph {key!r}, expected a rank and a place, as 0/3")
    notes = source.notes(Graph, rank=int(rank))
    if int(place) >= len(notes):
        raise LookupError(f"found no graph {key!r}: rank {rank} has compiled {len(notes)}")
    graph = notes[int(place)]
    modules = [note for note in source.notes(Module, rank=int(rank)) if note.id == graph.module]
    known = modules[-1].parameters if modules else ()
    named = [
        f"# {one.name}: {known[one.parameter].name}"
        for one in graph.arguments
        if one.parameter < len(known)
    ]
    if len(named) > _MOST_NAMES:
        named = [*named[:_MOST_NAMES], f"# and {len(named) - _MOST_NAMES} parameters more"]
    cut = [f"# left out here: {graph.cut}"] if graph.cut else []
    where = f"# {graph.role} of {graph.function}, {graph.file}:{graph.line}"
    whole = "\n".join([where, f"# backend {graph.backend}", *cut, *named, "", graph.code])
    if len(whole) <= LONGEST_READING:
        return whole
    kept = whole[: whole.rfind("\n", 0, LONGEST_READING - 100)]
    left = whole.count("\n") - kept.count("\n")
    return f"{kept}\n# {left} lines more: recording.graphs()['code'] has all that was recorded"
