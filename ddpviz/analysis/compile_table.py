"""``torch.compile`` and DDP, a row per module: how, into what, at what price, who reduces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ddpviz.analysis.compiled import OfModule, modules
from ddpviz.analysis.graphs import borders, latest_parts
from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import table
from ddpviz.events import Graph, GraphBreak, Kind, Recompile

_SCHEMA = {
    "rank": "int64",
    "module": "int64",
    "name": "str",
    "optimize_ddp": "str",
    "order": "str",
    "backend": "str",
    "compiled_autograd": "bool",
    "graphs": "int64",
    "subgraphs": "int64",
    "backward_graphs": "int64",
    "parameters": "int64",
    "bytes": "int64",
    "breaks": "int64",
    "break_reasons": "object",
    "recompilations": "int64",
    "recompile_reasons": "object",
    "all_reduces": "int64",
    "fused_all_reduces": "Int64",
    "compile_ms": "float64",
    "who_reduces": "str",
    "dropped": "str",
    "split": "str",
    "borders": "str",
}


def compile_table(source: Source, rank: int | None = None) -> pd.DataFrame:
    """One row per rank and DDP module of which something was compiled, or was to be.

    ``optimize_ddp``, ``order``, ``backend``, ``compiled_autograd``: as last seen. ``graphs``: whole
    ones of its forward, recompilations included; ``subgraphs``: parts of the latest, 0 where it is
    not split; ``backward_graphs``: of compiled autograd. ``parameters``, ``bytes``: in the latest
    graphs. ``breaks``, ``recompilations``: how many, with the reasons of each in a tuple.
    ``all_reduces``: in the compiled backward; ``fused_all_reduces``: left by Inductor's pass, <NA>
    where it did not run or was not seen.
    ``compile_ms``: how long Dynamo and its backends were at work in the module's forwards and
    backwards. ``who_reduces``: in one sentence; ``dropped``: what the mode silently leaves out.
    ``split``: whether and why its graph is split; ``borders``: whether graphs and reducer buckets
    end at the same parameters.
    """
    rows: list[dict[str, Any]] = []
    for of in source.ranks if rank is None else [rank]:
        breaks = source.notes(GraphBreak, rank=of)
        again = source.notes(Recompile, rank=of)
        took = source.records(kinds=Kind.COMPILE, ranks=of)
        for one in modules(source, of):
            mine = [note for note in breaks if note.module == one.module.id]
            if not one.compiled and not mine:
                continue
            rows.append(_row(source, one, mine, again, took))
    return table(_SCHEMA, {name: [row[name] for row in rows] for name in _SCHEMA})


def _row(
    source: Source,
    one: OfModule,
    breaks: list[GraphBreak],
    again: list[Recompile],
    took: np.ndarray,
) -> dict[str, Any]:
    rank, module = one.rank, one.module.id
    how = one.compiled[-1] if one.compiled else None
    recompiled = [note for note in again if note.module == module]
    parts = latest_parts(source, rank, module)
    inside = {argument.parameter for part in parts for argument in part.arguments}
    now_ns = how.time_ns if how is not None else 0
    times_ns = [note.time_ns for note in one.graphs] + [note.time_ns for note in one.breaks]
    last_ns = max([now_ns, *times_ns])
    backward = _latest(source, rank, module, "backward")
    fused = _latest(source, rank, module, "after fusion")
    spans = took[(took["module"] == module) & (took["end_ns"] > 0)]
    subgraphs = sum(part.role == "subgraph" for part in parts)
    return {
        "rank": rank,
        "module": module,
        "name": one.module.name,
        "optimize_ddp": "" if how is None else how.optimize_ddp,
        "order": "" if how is None else how.order,
        "backend": "" if how is None else how.backend,
        "compiled_autograd": how is not None and how.compiled_autograd,
        "graphs": len(one.graphs),
        "subgraphs": subgraphs,
        "backward_graphs": _backward_graphs(source, rank, module),
        "parameters": len(inside),
        "bytes": sum(one.module.parameters[index].bytes for index in inside),
        "breaks": len(breaks),
        "break_reasons": tuple(note.reason for note in breaks),
        "recompilations": len(recompiled),
        "recompile_reasons": tuple("; ".join(note.reasons) for note in recompiled),
        "all_reduces": _all_reduces(backward) if backward is not None else 0,
        "fused_all_reduces": -1 if fused is None else _all_reduces(fused),
        "compile_ms": float((spans["end_ns"] - spans["begin_ns"]).sum()) / 1e6,
        "who_reduces": one.who_reduces(last_ns),
        "dropped": one.dropped(last_ns),
        "split": _split(one, last_ns, subgraphs, len(breaks)),
        "borders": _borders(
            source, rank, module, "subgraph" if subgraphs == len(parts) else "graph"
        ),
    }


def _backward_graphs(source: Source, rank: int, module: int) -> int:
    found = source.notes(Graph, rank=rank)
    return len({note.id for note in found if note.module == module and note.role == "backward"})


def _latest(source: Source, rank: int, module: int, role: str) -> Graph | None:
    found = [
        note
        for note in source.notes(Graph, rank=rank)
        if note.module == module and note.role == role
    ]
    return found[-1] if found else None


def _all_reduces(graph: Graph) -> int:
    return sum("all_reduce" in operation for operation in graph.operations)


def _split(one: OfModule, time_ns: int, subgraphs: int, breaks: int) -> str:
    if found := one.how_split(time_ns, subgraphs):
        return found
    if breaks:
        made = "Dynamo broke off in DDP's own forward, and made no graph of the model's"
        return f"nothing was compiled: {made}"
    return "no graph was recorded"


def _borders(source: Source, rank: int, module: int, noun: str) -> str:
    """In one sentence; "" where there is nothing to compare. ``noun``: what the parts are."""
    found = borders(source, rank=rank)
    found = found[found["module"] == module]
    parts, buckets = found["part"].nunique(), found["bucket"].nunique()
    if parts < 2:
        return ""
    plan = f"{buckets} bucket{'s' if buckets > 1 else ''} for {parts} {noun}s"
    if len(found) == parts == buckets:
        return f"agree: {plan}"
    waiting = found.groupby("bucket")["part"].nunique()
    spread = int((waiting > 1).sum())
    waits = f"and {spread} of them {'waits' if spread == 1 else 'wait'}"
    return f"disagree: {plan}, {'which waits' if buckets == 1 else waits} for more than one {noun}"
