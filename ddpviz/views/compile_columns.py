"""The three columns of *compile*: a step's graphs, its buckets, and when these are sent."""

from __future__ import annotations

import math

from ddpviz.analysis.source import Source
from ddpviz.events import Graph
from ddpviz.views.compile_boxes import (
    BUCKETS,
    GRAPHS,
    LINE_PX,
    MOST_BOXES,
    PITCH_PX,
    TIME,
    Sheet,
)
from ddpviz.views.compile_chart import Chart, Sent, inside
from ddpviz.views.compile_code import key_of
from ddpviz.views.compile_nodes import add_cells, sequences, told
from ddpviz.views.lane_canvas import Lane
from ddpviz.views.text import count, duration, names, size

_GAP_PX = 12.0
_MOST_NAMES = 12


def draw_columns(source: Source, chart: Chart, above: str, width_px: int) -> Sheet:
    """Everything that the figure shows. ``above``: the line over it."""
    sheet = Sheet(chart.rank, max(chart.end_ms, 1e-3) * 1.04, width_px)
    sheet.paragraph(above)
    sheet.y += _GAP_PX / 2
    rank = f"on rank {chart.rank}"
    for column, heads in (
        (GRAPHS, ("graphs, in the order they run", "graphs, in order")),
        (BUCKETS, ("all-reduces",) if chart.python else ("reducer buckets", "buckets")),
        (TIME, (f"collectives: ms since backward began {rank}", f"ms of backward {rank}")),
    ):
        sheet.text(column, sheet.y + LINE_PX / 2, *heads)
    sheet.y += LINE_PX + 2
    _forward(source, chart, sheet)
    sheet.y += _GAP_PX
    _backward(source, chart, sheet)
    for graph in sequences(source, chart):
        sheet.y += 4
        sheet.text((0.0, 1.0), sheet.y + LINE_PX / 2, f"nodes {told(graph)}")
        sheet.y += LINE_PX
        key = key_of(source, chart.rank, graph)
        add_cells(sheet, graph, key)
        sheet.readings[key] = f"backward, {told(graph)}"
    sheet.y += 4
    return sheet


def _forward(source: Source, chart: Chart, sheet: Sheet) -> None:
    number, nbytes = chart.broadcasts
    broadcasts = f"{count(number, 'broadcast')} of buffers, {size(nbytes)}, before it"
    middle = sheet.y + PITCH_PX / 2
    few = count(number, "broadcast") if number else "no broadcast"
    sheet.text(TIME, middle, broadcasts if number else "no broadcast of buffers", few)
    for place, graph in enumerate(chart.forward[:MOST_BOXES]):
        text = _text("forward", chart, place)
        _box(source, chart, sheet, sheet.lane(), "forward", graph, text)
    if not chart.forward:
        sheet.text(GRAPHS, sheet.lane().middle, "forward: no graph recorded")
    if len(chart.forward) > MOST_BOXES:
        sheet.more(GRAPHS, len(chart.forward), "graph")
        sheet.y += LINE_PX


def _backward(source: Source, chart: Chart, sheet: Sheet) -> None:
    graphs = _backward_graphs(chart)
    number = len(chart.sent if chart.python else chart.buckets)
    left, right = (max(min(one, MOST_BOXES), 1) for one in (len(graphs), number))
    top, height_px = sheet.y, max(left, right) * PITCH_PX
    at: dict[int, Lane] = {}
    for row, (place, graph) in enumerate(graphs[:MOST_BOXES]):
        at[place] = lane = sheet.spread(top, row, left, height_px)
        text = _text("backward", chart, place) if place >= 0 else _text_of_whole(graph)
        _box(source, chart, sheet, lane, "backward", graph, text)
        _last_gradient(chart, sheet, place, text)
    if not graphs:
        sheet.text(GRAPHS, sheet.spread(top, 0, 1, height_px).middle, "backward: not compiled")
    sent = {one.number: one for one in chart.sent}
    for row in range(min(number, MOST_BOXES)):
        lane = sheet.spread(top, row, right, height_px)
        of = row
        if chart.python:
            of = chart.sent[row].number
            _all_reduce(sheet, chart.sent[row], lane, at.get(graphs[0][0]) if graphs else None)
        else:
            _bucket(chart, sheet, row, lane, at)
        if of in sent:
            _on_time_axis(chart, sheet, sent[of], lane)
    for mark in sheet.marks:
        mark["top"], mark["bottom"] = top, top + height_px
    sheet.y = top + height_px
    if max(len(graphs), number) > MOST_BOXES:
        sheet.more(GRAPHS, len(graphs), "graph")
        sheet.more(BUCKETS, number, "all-reduce" if chart.python else "bucket")
        sheet.y += LINE_PX


def _backward_graphs(chart: Chart) -> list[tuple[int, Graph | None]]:
    """(place in the forward, graph) as backward runs them: -1 for one that has all."""
    found: list[tuple[int, Graph | None]] = [*enumerate(chart.forward)]
    if chart.backward:
        return [(-1, chart.backward[0])]
    if chart.python:
        return []
    whole = chart.of.burst(chart.time_ns)
    return found[::-1] or ([(-1, None)] if whole else [])


def _text(which: str, chart: Chart, place: int) -> str:
    graph = chart.forward[place]
    name = f"{which} of graph {place}" if len(chart.forward) > 1 else which
    return f"{name}: {count(len(inside(graph)), 'parameter')}, {size(graph.bytes)}"


def _text_of_whole(graph: Graph | None) -> str:
    if graph is None:
        return "backward of what was compiled before"
    return f"backward: {count(graph.nodes, 'node')}, with DDP's hooks"


def _box(
    source: Source,
    chart: Chart,
    sheet: Sheet,
    lane: Lane,
    kind: str,
    graph: Graph | None,
    text: str,
) -> None:
    if graph is None:
        why = "its graph was not recorded with its parameters"
        sheet.box(GRAPHS, lane, kind, text, *_shorter(text), time=why)
        return
    key = key_of(source, chart.rank, graph)
    operations = count(graph.nodes, "operation")
    own = kind == "forward" or graph.role == "backward"
    time = f"{operations}, backend {graph.backend}" if own else f"{operations} in the forward"
    parameters = [chart.name(one) for one in sorted(inside(graph))]
    detail = names(parameters, _MOST_NAMES)
    sheet.box(GRAPHS, lane, kind, text, *_shorter(text), time=time, detail=detail, reading=key)
    sheet.readings.setdefault(key, text)


def _shorter(text: str) -> tuple[str, ...]:
    """What a narrow box has room for: without bytes, without parameters, the graph alone, whose
    direction its colour tells."""
    name = text.partition(":")[0]
    return text.rpartition(", ")[0] or text, name, name.rpartition(" of ")[2]


def _last_gradient(chart: Chart, sheet: Sheet, place: int, text: str) -> None:
    """Where a graph ends on the axis of time: when its last gradient was there."""
    wanted = inside(chart.forward[place]) if place >= 0 else set(chart.ready)
    ends = [chart.ready[one] for one in wanted if one in chart.ready]
    if ends and not chart.python:
        told = f"ready {duration(max(ends))} after backward began"
        head = f"the last gradient of: {text}"
        sheet.marks.append({"x": max(ends), "head": head, "time": told, "detail": ""})


def _all_reduce(sheet: Sheet, sent: Sent, lane: Lane, graph: Lane | None) -> None:
    name = f"all-reduce {sent.number}"
    text, by = f"{name}, {size(sent.bytes)}", "of python_reducer"
    sheet.box(BUCKETS, lane, "reduced", text, name, bucket=sent.number, time=by)
    if graph is not None:
        sheet.line(graph, lane, f"all-reduce {sent.number} is a node of this graph")


def _bucket(chart: Chart, sheet: Sheet, number: int, lane: Lane, at: dict[int, Lane]) -> None:
    bucket, graphs = chart.buckets[number], chart.graphs_of(number)
    parameters = [chart.name(one) for one in bucket.parameters]
    sheet.box(
        BUCKETS,
        lane,
        "bucket",
        f"bucket {number}, {size(bucket.bytes)}",
        f"bucket {number}",
        bucket=number,
        time=f"waits for {count(len(graphs), 'graph')}" if graphs else "",
        detail=names(parameters, _MOST_NAMES),
    )
    for place in graphs:
        if place in at:
            mine = inside(chart.forward[place])
            both = [chart.name(one) for one in bucket.parameters if one in mine]
            head = f"{count(len(both), 'parameter')} of graph {place} in bucket {number}"
            detail = names(both, _MOST_NAMES)
            sheet.line(at[place], lane, head, detail, several=len(graphs) > 1)
    if not graphs and -1 in at:
        sheet.line(at[-1], lane, f"bucket {number} of what was compiled before")


def _on_time_axis(chart: Chart, sheet: Sheet, sent: Sent, lane: Lane) -> None:
    begin = sent.launched_ms if math.isnan(sent.ready_ms) else sent.ready_ms
    name = f"all-reduce {sent.number}" if chart.python else f"bucket {sent.number}"
    if begin < sent.launched_ms:
        fills = f"{name} fills: {duration(sent.launched_ms - begin)}"
        since = "from its first gradient to its launch"
        sheet.bar(
            lane, "filling", begin, sent.launched_ms, head=fills, time=since, bucket=sent.number
        )
    known = not math.isnan(sent.done_ms)
    took = duration(sent.done_ms - sent.launched_ms) if known else "its end is not known"
    launched = f"launched {duration(sent.launched_ms)} after backward began"
    sheet.bar(
        lane,
        "in_flight",
        sent.launched_ms,
        sent.done_ms if known else max(chart.end_ms, sent.launched_ms),
        head=f"{name} in flight: {took}",
        time=f"{size(sent.bytes)}, {launched}",
        bucket=sent.number,
    )
    sheet.to_time(lane, begin, f"{name} and its collective")
