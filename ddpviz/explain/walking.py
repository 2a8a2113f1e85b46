"""Builds the walk of a step: functions or spans, the collectives in them, C++ stations."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np

from ddpviz.analysis.constructions import constructions
from ddpviz.analysis.source import Source as Records
from ddpviz.events import Kind, Process, Unavailable
from ddpviz.events import Walk as WalkNote
from ddpviz.explain import lines as sources
from ddpviz.explain import nodes as trees
from ddpviz.explain import spans
from ddpviz.explain.moment import Moment, read
from ddpviz.explain.nodes import Node
from ddpviz.explain.station import Seen, Station, Walk


def walk(recording: Records, step: int | None = None, rank: int | None = None) -> Walk:
    """The walk through one step of a rank, or through a construction (-1, -2, …).

    Where the step has a :class:`~ddpviz.events.Walk` note (:meth:`Session.walk
    <ddpviz.Session.walk>` or ``recorder.walk_next_step()`` asked for it) through the functions
    that really ran, else through the spans that every recording has. ``step``: by default the
    last one with a note, else the last that ended; ``rank``: the lowest. Raises ValueError for a
    rank or step that was not recorded.
    """
    if not recording.ranks:
        raise ValueError("found no rank in the recording, expected one that recorded something")
    if rank is None:
        rank = min(recording.ranks)
    if rank not in recording.ranks:
        known = ", ".join(map(str, recording.ranks)) or "none"
        raise ValueError(f"found no rank {rank} in the recording, expected one of: {known}")
    if step is not None and not isinstance(step, (int, np.integer)):
        raise ValueError(f"found the step {step!r}, expected its number, or None for the last one")
    notes = {note.step: note for note in recording.notes(WalkNote, rank=rank) if note.frames}
    moment = read(recording, _default(recording, notes, rank) if step is None else step, rank)
    note = notes.get(moment.step)
    if note is None:
        nodes = trees.of_spans(moment)
    else:
        nodes = trees.of_frames(note.frames)
        trees.add(nodes, moment)
        trees.tell_details(nodes, moment)
    loose = _place_collectives(nodes, moment)
    tops = sorted([*nodes, *loose], key=lambda node: node.station.begin_ns)
    process = _process(recording, rank)
    return Walk(
        step=moment.step,
        rank=rank,
        begin_ns=moment.begin_ns,
        end_ns=moment.end_ns,
        profiled=note is not None,
        torch="" if process is None else process.torch,
        remarks=tuple(_remarks(recording, moment, note)),
        stations=tuple(_finished(node, moment) for node in tops),
    )


def _default(recording: Records, notes: Iterable[int], rank: int) -> int:
    noted = max(notes, default=-1)
    if noted >= 0:
        return noted
    ended = recording.records(kinds=Kind.STEP, ranks=rank)["step"]
    if not len(ended):
        if any(rank in one.windows for one in constructions(recording)):
            return -1
        begun = np.unique(recording.records(ranks=rank)["step"])
        begun = begun[begun >= 0].tolist()
        some = f"; of step {begun[-1]} there is something: ask for it" if begun else ""
        raise ValueError(
            f"found no step of rank {rank} that has ended, expected one with a backward{some}"
        )
    return int(ended.max())


# --- what is inside them -------------------------------------------------------------------------


def _place_collectives(nodes: list[Node], moment: Moment) -> list[Node]:
    """Each into the innermost that launched it; those launched outside any."""
    loose: list[Node] = []
    for call in moment.calls:
        node = Node(moment.collective(call), moment.cause(call))
        above = trees.deepest(nodes, int(call["begin_ns"]))
        if above is not None:
            above = _builtin_after(above, moment.operation(call), node.station.begin_ns) or above
        (loose if above is None else above.inner).append(node)
    return loose


def _builtin_after(above: Node, name: str, launch_ns: int) -> Node | None:
    """The builtin that Python launched it with: the recorder notes the launch just before that."""
    for one in above.inner:
        if one.key == name and one.station.begin_ns >= launch_ns:
            return one
    return None


def _finished(node: Node, moment: Moment) -> Station:
    """With everything inside; C++ stations take what they hold."""
    if node.station.seen is Seen.COLLECTIVE:
        return node.station
    inner = list(node.inner)
    shown = _shown(node.key, node.station.begin_ns, node.station.end_ns, inner, moment)
    stations = _in_order(shown, [_finished(one, moment) for one in inner])
    return dataclasses.replace(node.station, stations=stations)


def _in_order(shown: list[Station], timed: list[Station]) -> tuple[Station, ...]:
    """By time; C++ stations, whose signs come late, as they are known to follow each other."""
    keyed, latest_ns = [], 0
    for one in shown:
        latest_ns = max(latest_ns, one.begin_ns)
        keyed.append((latest_ns, one))
    keyed += [(one.begin_ns, one) for one in timed]
    keyed.sort(key=lambda item: item[0])
    return tuple(one for _, one in keyed)


def _shown(key: str, begin_ns: int, end_ns: int, left: list[Node], moment: Moment) -> list[Station]:
    """C++ stations inside ``key``; takes out of ``left`` what stands below them."""
    found = []
    for one in spans.inside(key):
        proof = moment.shown(one, begin_ns, end_ns)
        if proof is None:
            continue
        function = one.entry.function
        below = _shown(function, begin_ns, end_ns, left, moment)
        held = [node for node in left if one.holds and _holds(one.holds, node)]
        left[:] = [node for node in left if node not in held]
        inner = _in_order(below, [_finished(node, moment) for node in held])
        station = Station(
            name=function,
            seen=Seen.SHOWN,
            begin_ns=proof.begin_ns,
            end_ns=proof.end_ns,
            detail=proof.text,
            entry=one.entry,
            file=one.entry.file,
            function=function,
            line=0,
            called_at=None,
            stations=inner,
        )
        found.append(station)
    return found


def _holds(cause: str, node: Node) -> bool:
    if node.station.seen is Seen.COLLECTIVE:
        return node.key == cause
    hook = spans.span(Kind.COMM_HOOK)
    return cause == "BUCKET" and hook is not None and node.station.entry is hook.entry


# --- what to know --------------------------------------------------------------------------------


def _process(recording: Records, rank: int) -> Process | None:
    """None where its file is cut before it."""
    return next(reversed(recording.notes(Process, rank=rank)), None)


def _remarks(recording: Records, moment: Moment, note: WalkNote | None) -> Iterator[str]:
    process, here = _process(recording, moment.rank), sources.installed().version
    if process is None:
        yield "which torch this was recorded with, and on what device, is not known"
    if note is None and moment.step >= 0:
        yield (
            "no functions were followed in this step, so these are the spans that every recording "
            "has: session.walk() or recorder.walk_next_step() follows the next step's functions"
        )
    if note is not None and process is not None and process.device != "cpu":
        yield (
            "gradients on a GPU come on autograd's own thread, which was not followed: what runs "
            "in Python during backward is not here"
        )
    for missing in recording.notes(Unavailable, rank=moment.rank):
        if missing.what == "walk" and moment.holds(missing.time_ns):
            yield f"the walk is not whole, because {missing.why}"
    if process is not None and process.torch not in ("", here):  # a trace doesn't say
        yield f"recorded with torch {process.torch}; lines are those of torch {here}, as installed"
