"""What *compile* says: its finding, who reduces, and what the graphs are as they are for."""

from __future__ import annotations

from ddpviz.analysis.graph_breaks import of_ddp, of_model
from ddpviz.analysis.graph_breaks import told as told_of
from ddpviz.analysis.source import Source, whole_of
from ddpviz.analysis.traced import untold
from ddpviz.events import GraphBreak, Kind, Module, Recompile, Split
from ddpviz.views.compile_chart import Chart
from ddpviz.views.text import ON_CUDA, count, duration, names

_MOST_FACTS = 6


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
        how = chart.of.how_split(chart.time_ns, 0)
        nothing = how if how.startswith("nothing was compiled") else ""
        return nothing or "what DDP's forward ran was compiled into no graph"
    if len(chart.forward) == 1:  # the breaks themselves are told below
        why = chart.of.how_split(chart.time_ns, 0).partition(", from ")[0]
        return f"{graphs} and {count(buckets, 'bucket')}: {why}"
    if buckets < 2:
        return f"{graphs}, but {count(buckets, 'bucket')}, which waits for the last of them"
    missed, borders = len(chart.missed), buckets - 1
    if not missed:
        return f"each of {buckets} buckets ends where one of {graphs} ends"
    waiting = sum(len(chart.graphs_of(number)) > 1 for number in range(buckets))
    waits = "waits" if waiting == 1 else "wait"
    where = f"at {missed} of {borders} borders between buckets no graph ends"
    if missed == borders:
        between = "the border" if borders == 1 else f"none of the {borders} borders"
        where = f"at {between} between buckets {'no' if borders == 1 else 'a'} graph ends"
    return f"{where}, so {waiting} of {buckets} buckets {waits} for more than one graph"


def _of_python(chart: Chart) -> str:
    sent = count(len(chart.sent), "all-reduce")
    if not chart.backward:
        return f"{sent}, one after another: each is waited for, as compiled autograd is off"
    traced = sum("all_reduce" in one for one in chart.backward[0].operations)
    inside = f"{count(traced, 'all-reduce')} traced into the compiled backward"
    if traced and not chart.sent:
        return f"{inside}; which it sent in this step is not known"
    if len(chart.sent) < traced:
        fused = "fused into" if chart.how.backend == "inductor" else "of which it sent"
        return f"{inside}, {fused} {sent}"
    return f"{sent} inside the compiled backward, none of them fused"


def why_none(source: Source, step: int) -> str:
    """Why there is nothing to draw of a step."""
    if why := untold(source, "what was compiled"):
        return why
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
    breaks = sum(of_ddp(one) for one in found)
    told = []
    if breaks:
        around = "around the module's"
        if chart.forward:
            around += ", which is compiled"
        told.append(f"{count(breaks, 'graph break')} in DDP's own forward, {around}")
    return told + [told_of(one) for one in of_model(found)[:_MOST_FACTS]]


def _extended(split: Split) -> list[str]:
    return [
        f"graph {place} was extended by {count(part.extended, 'node')}, to find one whose output "
        "is used outside"
        for place, part in enumerate(split.parts)
        if part.extended
    ]
