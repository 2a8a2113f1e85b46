"""What the records and notes of every rank's present life say of a collective that hangs."""

from __future__ import annotations

import numpy as np

from ddpviz.analysis.calls import calls
from ddpviz.analysis.naming import collective_name, label_texts
from ddpviz.analysis.places import Places, places
from ddpviz.analysis.source import Source
from ddpviz.analysis.waiting.own_code import own_line
from ddpviz.analysis.waiting.rows import RankWaiting
from ddpviz.events import Cause, Ended, Failure, Kind, Module, Plan, Process, StackLine, Stall


class Scene:
    """What ``waiting`` asks of a source, read once: the present life of every rank."""

    def __init__(self, source: Source, now_ns: int = 0) -> None:
        self.source = source
        self.begun = {one.rank: one.started_ns for one in source.notes(Process)}
        every = calls(source)
        since = np.array(
            [self.begun.get(rank, 0) for rank in range(max(source.ranks, default=-1) + 1)]
        )
        self.calls = every[every["begin_ns"] >= since[every["rank"]]] if len(every) else every
        self.stalls = {one.rank: one for one in source.notes(Stall) if self._of_now(one)}
        self.failures = {one.rank: one for one in source.notes(Failure) if self._of_now(one)}
        self.failed = np.array(sorted(self.failures), np.int64)
        self.ended = {one.rank: one for one in source.notes(Ended) if self._of_now(one)}
        self.places: Places = places(source)
        self.keys = self.places.keys(self.calls)
        texts, at = label_texts(source, self.calls)
        self.operation = np.array(texts, object)[at] if len(at) else np.zeros(0, object)
        self.last_ns = self._last_heard()
        self.now_ns = now_ns or max(self.last_ns.values(), default=0)

    def _of_now(self, note: Stall | Failure | Ended) -> bool:
        return note.time_ns >= self.begun.get(note.rank, 0)

    def _last_heard(self) -> dict[int, int]:
        """By rank, the time of its last record."""
        found = {}
        for rank in self.source.ranks:
            mine = self.source.records(ranks=rank)
            mine = mine[mine["kind"] != Kind.GAP]
            if len(mine):
                found[rank] = int(max(mine["begin_ns"].max(), mine["end_ns"].max()))
        for stall in self.stalls.values():
            found[stall.rank] = max(found.get(stall.rank, 0), stall.time_ns)
        return found

    def beside(self, call: np.void) -> tuple[RankWaiting, ...]:
        """Every recorded rank of the call's group, at this call."""
        key = int(self.places.keys(np.array([call], call.dtype))[0])
        if key < 0:
            return (self._inside(call, "in it"),)
        cluster = key >> 48
        call = self._most_common(key)
        members = np.array(self.source.ranks)[self.places.members[cluster]].tolist()
        name = self.operation[self._position(call)]
        return tuple(self._rank(rank, cluster, call, name) for rank in members)

    def _most_common(self, key: int) -> np.void:
        """Of ranks that are in different operations there: what most are in, of the lowest rank."""
        at = np.flatnonzero((self.keys == key) & (self.calls["end_ns"] == 0))
        operations = [(self.operation[one], int(self.calls["bytes"][one])) for one in at]
        order = [
            (-operations.count(operations[n]), int(self.calls["rank"][one]))
            for n, one in enumerate(at)
        ]
        found: np.void = self.calls[at[order.index(min(order))]]
        return found

    def _position(self, call: np.void) -> int:
        same = (self.calls["rank"] == call["rank"]) & (self.calls["begin_ns"] == call["begin_ns"])
        return int(np.flatnonzero(same & (self.calls["sequence"] == call["sequence"]))[0])

    def _rank(self, rank: int, cluster: int, call: np.void, name: str) -> RankWaiting:
        here = (self.keys >> 48 == cluster) & (self.calls["rank"] == rank)
        same = np.flatnonzero(here & (self.calls["sequence"] == call["sequence"]))
        if len(same):
            mine = self.calls[same[-1]]
            if self.operation[same[-1]] not in (name, "") or sizes_differ(call, mine, name):
                return self._inside(mine, "is in another")
            if mine["end_ns"] > 0:
                return self._inside(mine, "is through it")
            return self._inside(mine, "in it")
        state = "has not entered it"
        if rank in self.failures:
            state = "failed"
        elif rank in self.ended:
            state = "had ended"
        open_elsewhere = self.calls[(self.calls["rank"] == rank) & (self.calls["end_ns"] == 0)]
        if state == "has not entered it" and len(open_elsewhere):
            return self._inside(open_elsewhere[0], state)
        for_s = (self.now_ns - self.last_ns.get(rank, self.now_ns)) / 1e9
        stall = self.stalls.get(rank)
        if stall is not None and stall.sequence < 0:
            for_s = (self.now_ns - stall.since_ns) / 1e9
        line = self._line(rank, state, int(call["begin_ns"]))
        return RankWaiting(rank, state, "", -1, max(for_s, 0.0), "", line, ())

    def _inside(self, call: np.void, state: str) -> RankWaiting:
        rank = int(call["rank"])
        for_s = (self.now_ns - int(call["begin_ns"])) / 1e9 if call["end_ns"] == 0 else 0.0
        return RankWaiting(
            rank,
            state,
            collective_name(self.source, call),
            int(call["bytes"]),
            max(for_s, 0.0),
            self._on_device(call),
            self._line(rank, state, int(call["begin_ns"])),
            self._parameters(call),
        )

    def _on_device(self, call: np.void) -> str:
        stall = self.stalls.get(int(call["rank"]))
        same = stall is not None and stall.group == call["group"]
        return stall.device if stall and same and stall.sequence == call["sequence"] else ""

    def _line(self, rank: int, state: str, since_ns: int) -> StackLine | None:
        """Of the last stall, where that was while others waited already (``since_ns``), and the
        rank has not gone on since."""
        stall = self.stalls.get(rank)
        if stall is None or state in ("failed", "had ended") or stall.time_ns < since_ns:
            return None
        mine = self.source.records(ranks=rank)
        if len(mine) and int(mine["begin_ns"].max()) > stall.time_ns:
            return None
        return own_line(stall.stack)

    def _parameters(self, call: np.void) -> tuple[str, ...]:
        rank, module, bucket = (int(call[name]) for name in ("rank", "module", "index"))
        if call["cause"] != Cause.BUCKET or bucket < 0:
            return ()
        plans = [
            one
            for one in self.source.notes(Plan, rank=rank)
            if one.module == module and one.time_ns <= call["begin_ns"]
        ]
        named = [one for one in self.source.notes(Module, rank=rank) if one.id == module]
        if not plans or not named or bucket >= len(plans[-1].buckets):
            return ()
        parameters = named[-1].parameters
        return tuple(
            parameters[index].name
            for index in plans[-1].buckets[bucket].parameters
            if index < len(parameters)
        )


def sizes_differ(one: np.void, other: np.void, name: str) -> bool:
    """Whether the ranks give different sizes to what needs the same of all."""
    return name.split(" ")[0] in ("allreduce", "broadcast", "reduce") and bool(
        one["bytes"] != other["bytes"]
    )
