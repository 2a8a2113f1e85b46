"""The nodes of a compiled backward in a row of cells: before and after all-reduces are fused."""

from __future__ import annotations

import itertools

from ddpviz.analysis.source import Source
from ddpviz.events import Graph
from ddpviz.views.compile_boxes import TIME, Sheet
from ddpviz.views.compile_chart import Chart
from ddpviz.views.text import count

#: Cells of one row; what comes after them is one more.
_MOST_CELLS = 400
_ROLES = {
    "backward": "as compiled autograd has it",
    "before fusion": "before the fusion pass",
    "after fusion": "after it",
}


def sequences(source: Source, chart: Chart) -> list[Graph]:
    """Compiled autograd's backward, or what the fusion pass was given and left of it."""
    if not chart.backward:
        return []
    (backward,) = chart.backward
    passed = [
        note
        for note in source.notes(Graph, rank=chart.rank)
        if note.parent == backward.id and backward.time_ns <= note.time_ns <= chart.time_ns
    ]
    latest = {note.role: note for note in passed}
    fusion = [latest[role] for role in ("before fusion", "after fusion") if role in latest]
    return fusion if len(fusion) == 2 else [backward]


def told(graph: Graph) -> str:
    """What stands beside the row."""
    reduces = sum(kind_of(one) == "all_reduce" for one in graph.operations)
    return f"{_ROLES[graph.role]}: {count(graph.nodes, 'node')}, {count(reduces, 'all-reduce')}"


def add_cells(sheet: Sheet, graph: Graph, key: str) -> None:
    """A lane with a bar for each run of nodes of a kind. ``key``: of the graph's reading."""
    runs = [(kind, list(ones)) for kind, ones in itertools.groupby(graph.operations, kind_of)]
    if len(runs) > _MOST_CELLS:
        rest = [one for _, ones in runs[_MOST_CELLS:] for one in ones]
        runs = [*runs[:_MOST_CELLS], ("node", rest)]
    lane, left, right = sheet.lane(20.0), sheet.x(0.0), sheet.x(TIME[1])
    width = (right - left) / max(sum(len(ones) for _, ones in runs), 1)
    for kind, ones in runs:
        end = left + width * len(ones)
        names = [f"{name} × {n}" if n > 1 else name for name, n in _counted(ones)]
        head = ", ".join(names[:6]) + (" …" if len(names) > 6 else "")
        time = f"nodes {told(graph)}"
        sheet.bar(lane, kind, left, end, head=head, time=time, detail=graph.cut, reading=key)
        left = end


def kind_of(operation: str) -> str:
    """ "all_reduce", "wait", "fuse" (what puts gradients together and takes them apart) or
    "node"."""
    name = operation.lower()
    if "all_reduce" in name:
        return "all_reduce"
    if "wait_tensor" in name:
        return "wait"
    parts = name.split(".")
    return "fuse" if {"cat", "split", "split_with_sizes"} & {*parts} else "node"


def _counted(ones: list[str]) -> list[tuple[str, int]]:
    return [(name, len(list(same))) for name, same in itertools.groupby(ones)]
