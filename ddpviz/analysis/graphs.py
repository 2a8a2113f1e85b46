"""Every compiled graph, and which reducer buckets and collectives its parameters go into."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ddpviz.analysis.calls import calls, of_buckets
from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import SHARED_ID, check_step, table
from ddpviz.events import Compiled, Flag, Graph, Kind, Module, Plan, Split

_GRAPHS = {
    "rank": "int64",
    "module": "Int64",
    "graph": "int64",
    "role": "str",
    "parent": "Int64",
    "part": "Int64",
    "compile_id": "str",
    "function": "str",
    "file": "str",
    "line": "int64",
    "backend": "str",
    "nodes": "int64",
    "parameters": "int64",
    "parameter_names": "object",
    "bytes": "int64",
    "extended": "int64",
    "all_reduces": "int64",
    "compile_ms": "float64",
    "begin_ns": "int64",
    "operations": "object",
    "code": "str",
    "cut": "str",
}
_BORDERS = {
    "rank": "int64",
    "module": "int64",
    "graph": "int64",
    "part": "int64",
    "bucket": "int64",
    "parameters": "int64",
    "parameter_names": "object",
    "bytes": "int64",
    "completes": "bool",
    "sequence": "Int64",
    "launched_ns": "Int64",
}


def graphs(source: Source, rank: int | None = None) -> pd.DataFrame:
    """One row per graph that ``torch.compile`` made with a DDP module's parameters, or with none.

    In the order in which each rank compiled them. ``role``: "forward" (Dynamo's, whole),
    "subgraph" (DDPOptimizer's, of ``parent``, the ``part``-th from the begin of the forward),
    "backward" (compiled autograd's), "before fusion" and "after fusion" (Inductor's pass over a
    backward with all-reduces). ``module``, ``parent``, ``part``: <NA> for none. ``nodes``: calls in
    it; ``operations``: their names in order; ``extended``: nodes that DDPOptimizer took in
    beyond its limit, to find one whose output is used outside. ``all_reduces``: how many it has.
    ``compile_ms``: what its backend took, a split graph's subgraphs included; NaN where it did not
    end, raised, or has no time of its own (fusion). ``code``: readable, "" and ``cut`` why where it
    was left out.
    """
    found = [
        (of, note) for of in source.ranks if rank in (None, of) for note in source.notes(Graph, of)
    ]
    names = {of: _names(source, of) for of in source.ranks}
    parts = {(of, *one): place for of in source.ranks for one, place in _parts(source, of).items()}
    took = _compile_ms(source)
    rows = []
    for of, note in found:
        indices = list(dict.fromkeys(one.parameter for one in note.arguments))
        part, extended = parts.get((of, note.id), (-1, 0))
        rows.append(
            {
                "rank": of,
                "module": note.module if note.module < SHARED_ID else -1,
                "graph": note.id,
                "role": note.role,
                "parent": note.parent,
                "part": part,
                "compile_id": note.compile_id,
                "function": note.function,
                "file": note.file,
                "line": note.line,
                "backend": note.backend,
                "nodes": note.nodes,
                "parameters": len(indices),
                "parameter_names": tuple(_name(names[of], note.module, one) for one in indices),
                "bytes": note.bytes,
                "extended": extended,
                "all_reduces": sum("all_reduce" in one for one in note.operations),
                "compile_ms": took.get((of, note.id), np.nan),
                "begin_ns": note.time_ns,
                "operations": note.operations,
                "code": note.code,
                "cut": note.cut,
            }
        )
    return _table(_GRAPHS, rows)


def borders(source: Source, step: int | None = None, rank: int | None = None) -> pd.DataFrame:
    """Which buckets a module's graphs share parameters with: a row for each pair that does.

    Of the latest forward graphs of each module, or their subgraphs, and the bucket plan of ``step``
    (None: the latest). ``parameters``, ``bytes``: what is in both. ``completes``: the graph's
    backward hands over the last gradient of the bucket, as backward goes from the last part to the
    first. ``sequence``, ``launched_ns``: of the bucket's collective in ``step``, <NA> where it is
    not asked for or not known. Borders agree where every graph has one bucket, and every bucket
    one graph. None for python_reducer, which uses no buckets. Raises ValueError for a step that was
    not recorded.
    """
    check_step(source, step)
    rows: list[dict[str, Any]] = []
    for of in source.ranks if rank is None else [rank]:
        names, sent = _names(source, of), _sent(source, of, step)
        how = {one.module: one.reducer for one in source.notes(Compiled, rank=of)}
        python = {module for module, reducer in how.items() if reducer == "Python"}
        for module in sorted(names):
            plan = _plan(source, of, module, step)
            if plan is not None and module not in python:
                rows += _of_module(source, of, module, plan, names, sent)
    return _table(_BORDERS, rows)


def latest_parts(source: Source, rank: int, module: int, before_ns: int = 0) -> list[Graph]:
    """A module's graphs that its forward is made of, in its order: subgraphs where it is split.

    Of each frame the latest compilation, by ``before_ns`` where given.
    """
    notes = [
        note
        for note in source.notes(Graph, rank=rank)
        if note.module == module and (not before_ns or note.time_ns <= before_ns)
    ]
    latest: dict[str, Graph] = {}
    for note in notes:
        if note.role == "forward" and note.arguments:
            latest[note.compile_id.partition("/")[0]] = note
    found = []
    for whole in latest.values():
        parts = [note for note in notes if note.role == "subgraph" and note.parent == whole.id]
        found += [note for note in parts if note.arguments] or [whole]
    return found


def _of_module(
    source: Source,
    rank: int,
    module: int,
    plan: Plan,
    names: dict[int, Module],
    sent: dict[tuple[int, int], tuple[int, int]],
) -> list[dict[str, Any]]:
    sizes = [one.bytes for one in names[module].parameters]
    parts = latest_parts(source, rank, module)
    inside = [{one.parameter for one in part.arguments} for part in parts]
    rows = []
    for place, (part, mine) in enumerate(zip(parts, inside, strict=True)):
        for order, bucket in enumerate(plan.buckets):
            both = [one for one in bucket.parameters if one in mine]
            if not both:
                continue
            # Backward begins with the last graph.
            later = [other & {*bucket.parameters} for other in inside[:place]]
            sequence, launched_ns = sent.get((module, order), (-1, 0))
            rows.append(
                {
                    "rank": rank,
                    "module": module,
                    "graph": part.id,
                    "part": place,
                    "bucket": order,
                    "parameters": len(both),
                    "parameter_names": tuple(_name(names, module, one) for one in both),
                    "bytes": sum(sizes[one] for one in both),
                    "completes": not any(later),
                    "sequence": sequence,
                    "launched_ns": launched_ns,
                }
            )
    return rows


def _plan(source: Source, rank: int, module: int, step: int | None) -> Plan | None:
    plans = [one for one in source.notes(Plan, rank=rank) if one.module == module]
    if step is not None:
        forward = source.records(kinds=Kind.FORWARD, ranks=rank, steps=[step])
        iterations = forward["iteration"][forward["module"] == module]
        if not len(iterations):
            return None
        plans = [one for one in plans if one.iteration <= iterations.max()]
    return max(plans, key=lambda one: one.version, default=None)


def _sent(source: Source, rank: int, step: int | None) -> dict[tuple[int, int], tuple[int, int]]:
    if step is None:
        return {}
    found = of_buckets(calls(source, step))
    found = found[found["rank"] == rank]
    return {
        (int(one["module"]), int(one["index"])): (int(one["sequence"]), int(one["begin_ns"]))
        for one in found[::-1]
    }


def _names(source: Source, rank: int) -> dict[int, Module]:
    return {one.id: one for one in source.notes(Module, rank=rank) if one.id < SHARED_ID}


def _name(names: dict[int, Module], module: int, index: int) -> str:
    found = names[module].parameters if module in names else ()
    return found[index].name if 0 <= index < len(found) else f"parameter {index}"


def _parts(source: Source, rank: int) -> dict[tuple[int], tuple[int, int]]:
    return {
        (graph,): (place, split.parts[place].extended)
        for split in source.notes(Split, rank=rank)
        for place, graph in enumerate(split.graphs)
    }


def _compile_ms(source: Source) -> dict[tuple[int, int], float]:
    records = source.records(kinds=Kind.GRAPH)
    whole = records[(records["end_ns"] > 0) & ((records["flags"] & Flag.FAILED) == 0)]
    return {
        (int(one["rank"]), int(one["index"])): (one["end_ns"] - one["begin_ns"]) / 1e6
        for one in whole
    }


def _table(schema: dict[str, str], rows: list[dict[str, Any]]) -> pd.DataFrame:
    return table(schema, {name: [row[name] for row in rows] for name in schema})
