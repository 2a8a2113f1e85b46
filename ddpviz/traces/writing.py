"""A recording as Chrome's JSON, for Perfetto and chrome://tracing: one process per rank.

Lanes of a rank: its steps, its training thread, what its host did while a device went on,
gradients as they became ready, a lane per bucket of each module, other collectives. Flows go from a
gradient to its bucket and from there to its collective. Every event has its record in its
arguments, so that :mod:`ddpviz.traces.exported` reads it back whole.
"""

from __future__ import annotations

import bisect
import gzip
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, get_args

import msgspec
import numpy as np

from ddpviz import analysis
from ddpviz.analysis.naming import collective_name
from ddpviz.analysis.plans import plan_index
from ddpviz.analysis.tables import run_keys
from ddpviz.events import VERSION, Cause, Flag, Kind, Note, note_to_json
from ddpviz.recording import Recording

#: Fields of a record as an event's arguments have them, in this order.
FIELDS = (
    "kind", "cause", "flags", "clock", "module", "group", "index", "sequence", "iteration", "step",
    "bytes", "label",
)  # fmt: skip
_STEPS, _TRAINING, _READY, _MARKS, _HOST, _BUCKETS, _OTHERS = 1, 2, 3, 4, 5, 10, 1000
#: A moment is drawn as long as this: flows begin and end in what has a length.
_MOMENT_US = 1.0
_POINTS = (Kind.COLLECTIVE_LAUNCHED, Kind.GAP, Kind.CONFIGURED, Kind.FAILED)


def write_chrome(recording: Recording, path: str | Path) -> Path:
    """Writes the file, packed where its name ends in .gz, and returns its path.

    Times are of the recording's common clock, in µs since its first record;
    ``baseTimeNanoseconds`` is when that was.
    """
    path = Path(path)
    with path.open("wb") as file:
        if path.suffix == ".gz":
            with gzip.GzipFile("", "wb", 6, file) as packed:
                _write(recording, packed)
        else:
            _write(recording, file)
    return path


def _write(recording: Recording, file: IO[bytes] | gzip.GzipFile) -> None:
    base_ns = recording.begin_ns
    notes = {
        str(rank): [
            note_to_json(note)
            for kind in get_args(Note)
            for note in recording.notes(kind, rank=rank)
        ]
        for rank in recording.ranks
    }
    head = {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": base_ns,
        "ddpviz": {"version": VERSION, "notes": notes, "remarks": list(recording.remarks)},
    }
    encoder = msgspec.json.Encoder()
    file.write(encoder.encode(head)[:-1] + b',"traceEvents":[')
    for number, event in enumerate(_events(recording, base_ns)):
        file.write((b",\n" if number else b"\n") + encoder.encode(event))
    file.write(b"\n]}\n")


def _events(recording: Recording, base_ns: int) -> Iterator[dict[str, Any]]:
    flows = itertools.count(1)
    for rank in recording.ranks:
        records = recording.records(ranks=rank)
        yield _named("process_name", rank, 0, f"rank {rank}")
        yield {"ph": "M", "name": "process_sort_index", "pid": rank, "args": {"sort_index": rank}}
        lanes = {_STEPS: "steps", _TRAINING: "training thread", _READY: "gradients ready",
                 _MARKS: "marks"}  # fmt: skip
        others, buckets = _Lanes(), _bucket_lanes(recording, rank)
        several = len({module for module, _ in buckets}) > 1
        for (module, bucket), lane in buckets.items():
            lanes[lane] = f"bucket {bucket}" + (f" of module {module}" if several else "")
        launches, of_buckets = _launches(recording, rank), set(buckets.values())
        for record in records[np.argsort(records["begin_ns"], kind="stable")]:
            lane = _lane(record, others, buckets)
            lanes.setdefault(lane, "host" if lane == _HOST else "other collectives")
            event = _event(recording, record, rank, lane, base_ns)
            if lane in of_buckets and "dur" in event:
                # A completion may have been noted after the bucket's next launch; its own time
                # stands in the arguments.
                begins = launches[int(record["module"]), int(record["index"])]
                later = bisect.bisect_right(begins, int(record["begin_ns"]))
                if later < len(begins):
                    room_us = (begins[later] - int(record["begin_ns"])) / 1000
                    event["dur"] = min(event["dur"], room_us)
            yield event
        yield from _fillings(recording, rank, base_ns, flows, buckets)
        for lane, name in sorted(lanes.items()):
            yield _named("thread_name", rank, lane, name)
            yield {
                "ph": "M", "name": "thread_sort_index", "pid": rank, "tid": lane,
                "args": {"sort_index": lane},
            }  # fmt: skip


class _Lanes:
    """Lanes for what overlaps: the first that is free."""

    def __init__(self) -> None:
        self._until: list[int] = []

    def take(self, begin_ns: int, end_ns: int) -> int:
        for lane, until_ns in enumerate(self._until):
            if until_ns <= begin_ns:
                self._until[lane] = end_ns
                return lane
        self._until.append(end_ns)
        return len(self._until) - 1


_OF_BUCKET = ("module", "index", "begin_ns")
#: By (module, bucket) its lane.
_BucketLanes = dict[tuple[int, int], int]


def _bucket_lanes(recording: Recording, rank: int) -> _BucketLanes:
    """One for each bucket of each module, as far as there is room: modules overlap."""
    done = recording.records(kinds=Kind.COLLECTIVE_DONE, ranks=rank)
    done = done[(done["cause"] == Cause.BUCKET) & (done["index"] >= 0)]
    places = sorted(set(zip(done["module"].tolist(), done["index"].tolist(), strict=True)))
    return {place: _BUCKETS + at for at, place in enumerate(places[: _OTHERS - _BUCKETS])}


def _launches(recording: Recording, rank: int) -> dict[tuple[int, int], list[int]]:
    """By (module, bucket) when its collectives began, in order."""
    done = recording.records(kinds=Kind.COLLECTIVE_DONE, ranks=rank)
    done = done[done["cause"] == Cause.BUCKET]
    done = done[np.argsort(done["begin_ns"], kind="stable")]
    found: dict[tuple[int, int], list[int]] = {}
    fields = (done[name].tolist() for name in _OF_BUCKET)
    for module, bucket, begin_ns in zip(*fields, strict=True):
        found.setdefault((module, bucket), []).append(begin_ns)
    return found


def _lane(record: np.void, others: _Lanes, buckets: _BucketLanes) -> int:
    kind = int(record["kind"])
    if kind == Kind.HOST:
        return _HOST
    if kind == Kind.STEP:
        return _STEPS
    if kind == Kind.GRAD_READY:
        return _READY
    if kind in _POINTS:
        return _MARKS
    if kind == Kind.COLLECTIVE_DONE:
        if record["cause"] == Cause.BUCKET:
            lane = buckets.get((int(record["module"]), int(record["index"])))
            if lane is not None:
                return lane
        return _OTHERS + others.take(int(record["begin_ns"]), int(record["end_ns"]))
    return _TRAINING


def _event(
    recording: Recording, record: np.void, rank: int, lane: int, base_ns: int
) -> dict[str, Any]:
    begin_ns, end_ns = int(record["begin_ns"]), int(record["end_ns"])
    kind = int(record["kind"])
    args: dict[str, Any] = {"record": [int(record[field]) for field in FIELDS]}
    args["times_ns"] = [begin_ns, end_ns]
    flags = [flag.name for flag in Flag if int(record["flags"]) & flag]
    for name, value in (
        ("step", int(record["step"])),
        ("bytes", int(record["bytes"])),
        ("label", recording.label(rank, int(record["label"]))),
        ("how it is known", ", ".join(map(str, flags)).lower().replace("_", " ")),
    ):
        if value not in (-1, ""):
            args[name] = value
    event: dict[str, Any] = {
        "ph": "X",
        "cat": "ddpviz",
        "name": _name(recording, record, kind),
        "pid": rank,
        "tid": lane,
        "ts": (begin_ns - base_ns) / 1000,
        "dur": max(end_ns - begin_ns, 0) / 1000,
        "args": args,
    }
    if kind in _POINTS or not end_ns:
        del event["dur"]
        event |= {"ph": "i", "s": "t"}
    elif kind == Kind.GRAD_READY:
        event["dur"] = _MOMENT_US
    return event


def _name(recording: Recording, record: np.void, kind: int) -> str:
    if kind in (Kind.COLLECTIVE_LAUNCHED, Kind.COLLECTIVE_DONE):
        said = collective_name(recording, record)
        return f"{said} launched" if kind == Kind.COLLECTIVE_LAUNCHED else said
    if kind == Kind.STEP:
        return f"step {record['step']}"
    if kind == Kind.GRAD_READY:
        return f"gradient {record['index']} ready"
    known = {int(one): one.name for one in Kind}
    return known.get(kind, f"kind {kind}").lower().replace("_", " ")


def _fillings(
    recording: Recording, rank: int, base_ns: int, flows: Iterator[int], buckets: _BucketLanes
) -> Iterator[dict[str, Any]]:
    """Each bucket from its first gradient to its launch, with the flows into and out of it."""
    table = analysis.buckets(recording)
    table = table[(table["rank"] == rank) & table["launched_ns"].notna()]
    table = table[table["first_ready_ns"].notna()]
    if table.empty:
        return
    ready = recording.records(kinds=Kind.GRAD_READY, ranks=rank)
    index = plan_index(recording)
    plans = index.at(run_keys(ready))
    place = index.parameter(plans, ready["index"].astype(np.int64))
    bucket_of = np.where(place >= 0, index.parameter_bucket[np.maximum(place, 0)], -1)
    members: dict[tuple[int, int, int], list[int]] = {}
    for at, bucket in enumerate(bucket_of.tolist()):
        key = int(ready["module"][at]), int(ready["iteration"][at]), bucket
        members.setdefault(key, []).append(int(ready["begin_ns"][at]))
    until_ns = _in_flight_until(recording, rank)
    for row in table.itertuples(index=False):
        # A completion may have been noted late, after the next gradients: rows must not overlap.
        begins, ends = until_ns.get((int(row.module), int(row.bucket)), ([], []))
        earlier = bisect.bisect_left(begins, int(row.launched_ns))
        over_ns = ends[earlier - 1] if earlier else 0
        begin_us = (max(int(row.first_ready_ns), over_ns) - base_ns) / 1000
        launch_us = (int(row.launched_ns) - base_ns) / 1000
        lane = buckets.get((int(row.module), int(row.bucket)))
        if launch_us <= begin_us or lane is None:
            continue
        yield {
            "ph": "X", "cat": "filling", "name": f"bucket {row.bucket} fills", "pid": rank,
            "tid": lane, "ts": begin_us, "dur": launch_us - begin_us,
            "args": {"bytes": int(row.bytes), "parameters": int(row.parameters)},
        }  # fmt: skip
        for time_ns in members.get((int(row.module), int(row.iteration), int(row.bucket)), ()):
            at_us = (time_ns - base_ns) / 1000
            yield from _flow(next(flows), "gradient to bucket", rank, _READY, at_us, lane, at_us)
        yield from _flow(next(flows), "bucket to collective", rank, lane, begin_us, lane, launch_us)


def _in_flight_until(
    recording: Recording, rank: int
) -> dict[tuple[int, int], tuple[list[int], list[int]]]:
    """By (module, bucket) the launches of its collectives, in order, and until when they and all
    before them were in flight, as it is written."""
    done = recording.records(kinds=Kind.COLLECTIVE_DONE, ranks=rank)
    done = done[done["cause"] == Cause.BUCKET]
    done = done[np.argsort(done["begin_ns"], kind="stable")]
    found: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
    fields = (done[name].tolist() for name in ("module", "index", "begin_ns", "end_ns"))
    for module, bucket, begin_ns, end_ns in zip(*fields, strict=True):
        begins, ends = found.setdefault((module, bucket), ([], []))
        begins.append(begin_ns)
        ends.append(max(end_ns, ends[-1]) if ends else end_ns)
    return found


def _flow(
    number: int, name: str, rank: int, lane: int, ts: float, to_lane: int, to_ts: float
) -> Iterator[dict[str, Any]]:
    common = {"cat": "flow", "name": name, "id": number, "pid": rank}
    yield {**common, "ph": "s", "tid": lane, "ts": ts}
    yield {**common, "ph": "f", "bp": "e", "tid": to_lane, "ts": to_ts}


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}
