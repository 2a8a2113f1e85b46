"""The tree that a walk is made from: recorded spans, or functions that ran."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from ddpviz.events import Frame, Kind
from ddpviz.explain import lines as sources
from ddpviz.explain import spans
from ddpviz.explain.knowledge import entry
from ddpviz.explain.moment import Moment
from ddpviz.explain.station import Seen, Station

#: What Python does not see, so that no function stands for it: added to functions that ran.
_ADDED = (Kind.COMM_HOOK, Kind.FINALIZE)


@dataclasses.dataclass(eq=False)
class Node:
    """A station that is not finished. ``key``: under which spans.toml has what is inside it."""

    station: Station
    key: str
    inner: list[Node] = dataclasses.field(default_factory=list)

    def holds(self, begin_ns: int) -> bool:
        return self.station.begin_ns <= begin_ns <= self.station.end_ns


def of_spans(moment: Moment) -> list[Node]:
    """The spans of a step, one in the other as their times say."""
    tops: list[Node] = []
    open_: list[Node] = []
    records = moment.spans
    order = np.lexsort((records["kind"], -records["end_ns"], records["begin_ns"]))
    for record in records[order]:
        node = _of_record(record, moment)
        if node is None:
            continue
        while open_ and not _within(node, open_[-1]):
            open_.pop()
        (open_[-1].inner if open_ else tops).append(node)
        open_.append(node)
    return tops


def _within(inner: Node, outer: Node) -> bool:
    return outer.holds(inner.station.begin_ns) and inner.station.end_ns <= outer.station.end_ns


def _of_record(record: np.void, moment: Moment) -> Node | None:
    found = spans.span(int(record["kind"]))
    if found is None:
        return None
    one = found.entry
    station = Station(
        name=one.function or one.title,
        seen=Seen.RECORDED,
        begin_ns=int(record["begin_ns"]),
        end_ns=int(record["end_ns"]),
        detail=moment.detail(record),
        entry=one,
        file=one.file,
        function=one.function,
        line=0,
        called_at=None,
        stations=(),
    )
    return Node(station, found.builtin)


def of_frames(frames: tuple[Frame, ...]) -> list[Node]:
    """Functions that ran, one in the other as they called each other."""
    tops: list[Node] = []
    open_: list[Node] = []
    for frame in frames:
        del open_[frame.depth :]
        above = open_[-1].station if open_ else None
        called_at = (above.file, frame.called_at) if above and frame.called_at else None
        function = sources.qualified(frame.file, frame.function, frame.line)
        station = Station(
            name=function,
            seen=Seen.RAN,
            begin_ns=frame.begin_ns,
            end_ns=frame.end_ns,
            detail="",
            entry=entry(frame.file, function),
            file=frame.file,
            function=function,
            line=frame.line,
            called_at=called_at,
            stations=(),
        )
        node = Node(station, function if not frame.file else "")
        (open_[-1].inner if open_ else tops).append(node)
        open_.append(node)
    return tops


def add(nodes: list[Node], moment: Moment) -> None:
    """What no function stands for, where its time says."""
    for record in moment.spans[np.isin(moment.spans["kind"], _ADDED)]:
        node = _of_record(record, moment)
        if node is None:
            continue
        above = deepest(nodes, node.station.begin_ns)
        siblings = nodes if above is None else above.inner
        node.inner = [one for one in siblings if _within(one, node)]
        siblings[:] = [one for one in siblings if one not in node.inner]
        siblings.append(node)
        siblings.sort(key=lambda one: one.station.begin_ns)


def tell_details(nodes: list[Node], moment: Moment) -> None:
    """What spans say, told at the functions that they are the spans of."""
    for record in moment.spans:
        found = spans.span(int(record["kind"]))
        detail = moment.detail(record)
        if found is None or not detail:
            continue
        alike = [one for one in all_of(nodes) if one.station.entry is found.entry]
        near = [one for one in alike if one.station.begin_ns <= int(record["end_ns"])]
        near = [one for one in near if one.station.end_ns >= int(record["begin_ns"])]
        if near and not near[0].station.detail:
            near[0].station = dataclasses.replace(near[0].station, detail=detail)


def all_of(nodes: list[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        yield from all_of(node.inner)


def deepest(nodes: list[Node], time_ns: int) -> Node | None:
    for node in nodes:
        # A collective is no function: what comes after its launch is not inside it.
        if node.holds(time_ns) and node.station.seen is not Seen.COLLECTIVE:
            return deepest(node.inner, time_ns) or node
    return None
