"""What *compile* says: its finding, who reduces, and what the graphs are as they are for."""

from __future__ import annotations

from ddpviz.analysis.source import Source, whole_of
from ddpviz.events import GraphBreak, Kind, Module, Recompile, Split
from ddpviz.views.compile_chart import Chart
from ddpviz.views.text import ON_CUDA, count, duration, names

_MOST_FACTS = 6
_DDP_FILE = "torch/nn/parallel/distributed.py"


def who(chart: Chart) -> str:
    """Who reduces, and what is silently left out."""
    dropped = chart.of.dropped(chart.time_ns)
    told, mode = chart.of.who_reduces(chart.time_ns), chart.how.optimize_ddp
    told = told if told.startswith(mode) else f"{mode}: {told}"
    return told + (f"; silently left out: {dropped}" if dropped else "")


def finding(chart: Chart) -> str:
    """The title, without its step."""
    if chart.python:
        return _of_python(chart)
    buckets, graphs = len(chart.buckets), count(len(chart.forward), "graph")
    if chart.of.burst(chart.time_ns):
        gradients = count(len(chart.ready), "gradient")
        spread = max(chart.ready.values(), default=0) - min(chart.ready.values(), default=0)
        after = f"; {count(buckets, 'bucket')} only then" if chart.ready else ""
        return f"one backward for all: {gradients} in one burst of {duration(spread)}{after}"
    if not chart.forward:
        return "what DDP's forward ran was compiled into no graph"
    if buckets < 2:
        return f"{graphs}, but {count(buckets, 'bucket')}, which waits for the last of them"
    missed, borders = len(chart.missed), buckets - 1
    if not missed:
        return f"each of {buckets} buckets ends where one of {graphs} ends"
    waiting = sum(len(chart.graphs_of(number)) > 1 for number in range(buckets))
    waits = "waits" if waiting == 1 else "wait"
    return (
        f"no graph ends at {missed} of {count(borders, 'border')} between buckets, so {waiting} of "
        f"{buckets} buckets {waits} for more than one graph"
    )


def _of_python(chart: Chart) -> str:
    sent = count(len(chart.sent), "all-reduce")
    if not chart.backward:
        return f"{sent}, one after another: each is waited for, as compiled autograd is off"
    traced = sum("all_reduce" in one for one in chart.backward[0].operations)
    if len(chart.sent) < traced:
        return f"{traced} all-reduces traced into the compiled backward, fused into {sent}"
    return f"{sent} inside the compiled backward, none of them fused"


def why_none(source: Source, step: int) -> str:
    """Why there is nothing to draw of a step."""
    if not source.notes(Module):
        return "this recording has no notes of DDP modules, so it cannot tell what was compiled"
    if not len(source.records(kinds=Kind.FORWARD, steps=step)):
        return "no forward of a DDP module was recorded"
    return (
        "no compilation of its DDP module was recorded: it runs eagerly, or it was compiled "
        "before recording began"
    )


def facts(source: Source, chart: Chart) -> tuple[str, ...]:
    """A sentence each, below the figure."""
    how = chart.how
    autograd = ", with compiled autograd" if how.compiled_autograd else ""
    told = [f"backend {how.backend or 'not known'}, {how.order}{autograd}"]
    if (took_ms := _compile_ms(source, chart)) > 0:
        told.append(f"compiling took rank {chart.rank} {duration(took_ms)} until then")
    of_module = {one.id for one in chart.of.graphs}
    for graph, split in chart.of.splits.items():
        if graph in of_module:
            told += _extended(split)
    told += _breaks(source, chart)
    again = [
        one
        for one in source.notes(Recompile, rank=chart.rank)
        if one.module == chart.of.module.id and one.time_ns <= chart.time_ns
    ]
    for one in again[:_MOST_FACTS]:
        told.append(f"{one.function} was compiled again: {names(list(one.reasons), 2)}")
    if chart.backward and how.backend != "inductor":
        told.append("Inductor alone has the pass that fuses all-reduces")
    if chart.enqueued:
        told.append(ON_CUDA)
    if chart.missed and len(chart.forward) > 1:
        told.append(
            "a bucket closes at the tensor that reaches its limit, a graph where DDPOptimizer's "
            "own count does: the two need not agree"
        )
    return tuple(told)


def _compile_ms(source: Source, chart: Chart) -> float:
    took = whole_of(source).records(kinds=Kind.COMPILE, ranks=chart.rank)
    mine = (took["module"] == chart.of.module.id) & (took["end_ns"] > 0)
    took = took[mine & (took["end_ns"] <= chart.time_ns)]
    return float((took["end_ns"] - took["begin_ns"]).sum()) / 1e6


def _breaks(source: Source, chart: Chart) -> list[str]:
    found = [
        one
        for one in source.notes(GraphBreak, rank=chart.rank)
        if one.module == chart.of.module.id and one.time_ns <= chart.time_ns
    ]
    of_torch = [
        one
        for one in found
        if one.file.replace("\\", "/").endswith(_DDP_FILE)
        or "`DistributedDataParallel." in one.reason
    ]
    told = []
    if of_torch:
        breaks = count(len(of_torch), "graph break")
        told.append(f"{breaks} in DDP's own forward, around the module's, which is compiled")
    others = {(one.file, one.line): one for one in found if one not in of_torch}
    for one in list(others.values())[:_MOST_FACTS]:
        why = " ".join(one.reason.split())
        why = why.partition(" Explanation: ")[2].partition(" Hint: ")[0] or why
        told.append(f"a graph break at {one.file}:{one.line}: {one.type}: {why[:200]}")
    return told


def _extended(split: Split) -> list[str]:
    return [
        f"graph {place} was extended by {count(part.extended, 'node')}, to find one whose output "
        "is used outside"
        for place, part in enumerate(split.parts)
        if part.extended
    ]
