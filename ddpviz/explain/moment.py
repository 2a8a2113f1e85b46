"""What a recording has of one step of one rank, as its walk needs it."""

from __future__ import annotations

import dataclasses

import numpy as np

from ddpviz.analysis.calls import calls
from ddpviz.analysis.constructions import constructions
from ddpviz.analysis.naming import collective_name
from ddpviz.analysis.source import Source as Records
from ddpviz.analysis.tables import no_step
from ddpviz.analysis.units import format_bytes
from ddpviz.events import Cause, Configuration, Flag, Kind, Module
from ddpviz.explain.knowledge import operation
from ddpviz.explain.spans import ALWAYS, DELAYED, Inside, kinds
from ddpviz.explain.station import Seen, Station

_OPERATIONS = {
    "allreduce": "c10d::allreduce_",
    "broadcast": "c10d::broadcast_",
    "allgather": "c10d::allgather_",
}


@dataclasses.dataclass(frozen=True)
class Proof:
    """What shows that C++ ran: when its first and last sign was, and a text that says so."""

    begin_ns: int
    end_ns: int
    text: str


@dataclasses.dataclass(frozen=True)
class Moment:
    """``spans``, ``points``, ``calls``: RECORD arrays of this rank's part of the step.
    ``configurations``: DDP's arguments as they were, by module."""

    recording: Records
    step: int
    rank: int
    begin_ns: int
    end_ns: int
    spans: np.ndarray
    points: np.ndarray
    calls: np.ndarray
    configurations: dict[int, dict[str, object]]

    def holds(self, time_ns: int) -> bool:
        """Whether a note of that time is this step's: a walk's is written as the step ends."""
        return self.begin_ns <= time_ns <= self.end_ns + 10_000_000

    def cause(self, call: np.void) -> str:
        """Its cause's name; DELAYED for a bucket that was launched after backward."""
        if call["cause"] == Cause.BUCKET and call["flags"] & Flag.DELAYED:
            return DELAYED
        return Cause(int(call["cause"])).name

    def operation(self, call: np.void) -> str:
        """What it was called as: "allreduce"."""
        return self._label(call).split(" ")[0]

    def collective(self, call: np.void) -> Station:
        """A collective as a station."""
        operation_name = _OPERATIONS.get(self.operation(call), "")
        begin_ns, end_ns = int(call["begin_ns"]), int(call["end_ns"])
        dtype = self._label(call).partition(" ")[2]
        parts = [format_bytes(float(call["bytes"])), dtype]
        if call["flags"] & Flag.ENQUEUED:
            parts.append("enqueued on the stream; when it ran is not seen")
        elif not end_ns:
            parts.append("never completed")
        return Station(
            name=collective_name(self.recording, call),
            seen=Seen.COLLECTIVE,
            begin_ns=begin_ns,
            end_ns=0 if call["flags"] & Flag.ENQUEUED else end_ns,
            detail=", ".join(part for part in parts if part),
            entry=operation(operation_name) if operation_name else None,
            file="",
            function="",
            line=0,
            called_at=None,
            stations=(),
        )

    def shown(self, one: Inside, begin_ns: int, end_ns: int) -> Proof | None:
        """What shows this C++ station within that time; None where nothing does."""
        if one.only or one.unless:
            values = self._configuration(begin_ns, end_ns)
            if one.only and not values.get(one.only):
                return None
            if one.unless and values.get(one.unless):
                return None
        for sign in one.shown_by:
            if sign == ALWAYS:
                return Proof(begin_ns, end_ns, "")
            found = self._signs(sign)
            last_ns = found["begin_ns"]
            if sign in Kind.__members__:  # a span is recorded around what it is the span of
                last_ns = np.maximum(found["begin_ns"], found["end_ns"])
            inside = found[(last_ns >= begin_ns) & (found["begin_ns"] <= end_ns)]
            if len(inside):
                times = inside["begin_ns"]
                return Proof(int(times.min()), int(times.max()), self._counted(sign, inside))
        return None

    def _configuration(self, begin_ns: int, end_ns: int) -> dict[str, object]:
        """Of the module that this time is about: whose span is in it, or is the shortest around
        it; of the step's first where there is none."""
        spans = self.spans[np.isin(self.spans["module"], list(self.configurations))]
        inside = spans[(spans["begin_ns"] >= begin_ns) & (spans["end_ns"] <= end_ns)]
        around = spans[(spans["begin_ns"] <= begin_ns) & (spans["end_ns"] >= end_ns)]
        if len(inside):
            module = int(inside["module"][0])
        elif len(around):
            module = int(around["module"][np.argmin(around["end_ns"] - around["begin_ns"])])
        else:
            module = min(self.configurations, default=0)
        return self.configurations.get(module, {})

    def _signs(self, sign: str) -> np.ndarray:
        if sign == DELAYED or sign in Cause.__members__:
            causes = np.array([self.cause(call) for call in self.calls], object)
            found: np.ndarray = self.calls[causes == sign]
            return found
        kind = Kind[sign]
        among = self.points if kind == Kind.GRAD_READY else self.spans
        found = among[among["kind"] == kind]
        return found

    def _counted(self, sign: str, found: np.ndarray) -> str:
        count = len(found)
        if sign == "GRAD_READY":
            in_order = found[np.argsort(found["begin_ns"], kind="stable")]
            first, last = self._parameter(in_order[0]), self._parameter(in_order[-1])
            return f"{count} gradients, from {first} to {last}" if count > 1 else first
        if sign in ("BUCKET", DELAYED):
            return f"{count} buckets" if count != 1 else "1 bucket"
        if sign in Cause.__members__:
            return f"{count} collectives" if count != 1 else "1 collective"
        return ""

    def _parameter(self, record: np.void) -> str:
        for module in self.recording.notes(Module, rank=self.rank):
            index = int(record["index"])
            if module.id == record["module"] and index < len(module.parameters):
                return module.parameters[index].name
        return f"parameter {record['index']}"

    def detail(self, record: np.void) -> str:
        """What a span's record says beside its time."""
        kind, flags, index = int(record["kind"]), int(record["flags"]), int(record["index"])
        parts = []
        if kind == Kind.FORWARD:
            parts = ["no gradients"] if flags & Flag.NO_GRAD else []
            parts += ["in no_sync"] if flags & Flag.NO_SYNC else []
        elif kind == Kind.BUFFER_SYNC:
            buffers = "1 buffer" if index == 1 else f"{index} buffers"
            parts = [f"{buffers}, {format_bytes(float(record['bytes']))}"]
        elif kind == Kind.REBUILD:
            parts = [f"bucket plan {index}"]
        elif kind == Kind.COMM_HOOK:
            parts = [f"bucket {index}, {format_bytes(float(record['bytes']))}"]
        elif kind == Kind.COMMON_RANK:
            parts = [f"rank {index}"]
        elif kind == Kind.FINALIZE:
            parts = [f"{index} buckets" if index != 1 else "1 bucket"]
        elif kind == Kind.CONSTRUCTION_COLLECT:
            parts = [f"{index} parameters"]
        elif kind == Kind.CONSTRUCTION_REDUCER:
            parts = [f"first plan of {index} bucket{'s' if index != 1 else ''}"]
        elif kind == Kind.OPTIMIZER:
            parts = [self._label(record)]
        if flags & Flag.DERIVED:
            parts.append("derived")
        if flags & Flag.FAILED:
            parts.append("ended by an exception")
        return ", ".join(part for part in parts if part)

    def _label(self, record: np.void) -> str:
        return self.recording.label(int(record["rank"]), int(record["label"]))


def read(recording: Records, step: int, rank: int) -> Moment:
    """The step of a rank; -1, -2, … are constructions. Raises ValueError where it has none."""
    if step < 0:
        return _construction(recording, step, rank)
    records = recording.records(ranks=rank, steps=[step])
    if not len(records):
        known = np.unique(recording.records(ranks=rank)["step"])
        raise ValueError(no_step(step, known[known >= 0].tolist(), len(constructions(recording))))
    whole = records[records["kind"] == Kind.STEP]
    begin_ns = int(whole["begin_ns"][0] if len(whole) else records["begin_ns"].min())
    end_ns = int(whole["end_ns"][0] if len(whole) else records["end_ns"].max())
    called = calls(recording, step)
    return _moment(recording, step, rank, (begin_ns, end_ns), records, called)


def _construction(recording: Records, step: int, rank: int) -> Moment:
    built = constructions(recording)
    found = next((one for one in built if one.step == step and rank in one.windows), None)
    if found is None:
        known = np.unique(recording.records(ranks=rank)["step"])
        raise ValueError(no_step(step, known[known >= 0].tolist(), len(built)))
    records = recording.records(ranks=rank, steps=[-1])
    called = calls(recording, -1)
    inside = found.holds(records), found.holds(called)
    return _moment(
        recording, step, rank, found.windows[rank], records[inside[0]], called[inside[1]]
    )


def _moment(
    recording: Records,
    step: int,
    rank: int,
    window: tuple[int, int],
    records: np.ndarray,
    called: np.ndarray,
) -> Moment:
    ended = records["end_ns"] > 0
    return Moment(
        recording=recording,
        step=step,
        rank=rank,
        begin_ns=window[0],
        end_ns=window[1],
        spans=records[np.isin(records["kind"], kinds()) & ended],
        points=records[records["kind"] == Kind.GRAD_READY],
        calls=called[called["rank"] == rank],
        configurations=_configurations(recording, rank, records, window[1]),
    )


def _configurations(
    recording: Records, rank: int, records: np.ndarray, end_ns: int
) -> dict[int, dict[str, object]]:
    """DDP's arguments as they were then, of each module that the step has."""
    modules = set(np.unique(records["module"][records["kind"] != Kind.STEP]).tolist())
    values: dict[int, dict[str, object]] = {}
    for note in recording.notes(Configuration, rank=rank):
        if note.module in modules and (note.time_ns <= end_ns or note.module not in values):
            values[note.module] = note.values
    return values
