"""Traces as a recording: every rank's records on one clock, with what is known of the run."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from ddpviz.events import (
    Batch,
    Bucket,
    Cause,
    Group,
    Label,
    Module,
    Note,
    Plan,
    Process,
    Tensor,
)
from ddpviz.recording import Recording
from ddpviz.traces import exported, flight, reading
from ddpviz.traces.clocks import Clock, clocks
from ddpviz.traces.errors import TraceError
from ddpviz.traces.records import MODULE, label, records
from ddpviz.traces.runs import Run, examine
from ddpviz.traces.told import clock_remarks, doubts, remarks_on

_NAME = "DDP module"


@dataclasses.dataclass(frozen=True)
class Imported:
    """``runs`` and ``clocks``: one per rank, in the order of ranks."""

    recording: Recording
    runs: list[Run]
    clocks: list[Clock]


def read(paths: str | Path | Sequence[str | Path], rank: int | None = None) -> Imported:
    """Reads a trace, several, or a directory of them. ``rank``: of a single file that doesn't say.

    In a directory, files that are no traces are left out, and a remark of the recording says so.
    A dump of the flight recorder, or an export of ddpviz's own, has no runs. Raises
    :class:`TraceError`.
    """
    given = [paths] if isinstance(paths, (str, Path)) else list(paths)
    if rank is not None and (len(given) > 1 or Path(given[0]).is_dir()):
        raise TraceError(
            f"found rank={rank} for several traces, expected a single one that does not say its "
            "rank: name the files so that they say it, as trace.rank0.json"
        )
    runs: list[Run] = []
    found: list[reading.RankTrace] = []
    dumps: list[tuple[int, flight.Dump]] = []
    refused: list[TraceError] = []
    for path in map(Path, given):
        for file in reading.files_of(path):
            try:
                read_one = reading.read_file(file)
                if isinstance(read_one, exported.Exported):
                    if len(given) > 1 or path.is_dir():
                        raise TraceError(
                            f"found an export of ddpviz at {file}, with all its ranks, among other "
                            "files: read it alone"
                        )
                    return Imported(exported.recording_of(read_one), [], [])
                if isinstance(read_one, flight.Dump):
                    dumps.append((reading.rank_of_dump(read_one, rank), read_one))
                    continue
                one = reading.rank_of(read_one, rank)
                runs.append(examine(one))
                found.append(one)
            except TraceError as error:
                if not path.is_dir():
                    raise
                refused.append(error)
    if not runs and not dumps:
        raise refused[0] if refused else TraceError("found no trace, expected at least one")
    remarks = [f"left out: {error}" for error in refused]
    reading.refuse_doubles([(one.rank, one.trace.path) for one in found])
    reading.refuse_doubles([(of, dump.path) for of, dump in dumps])
    if dumps:
        if runs:
            raise TraceError(
                f"found a flight recorder's dump ({dumps[0][1].path}) among profiler traces, "
                "expected one or the other: read them apart"
            )
        recording = flight.recording_of(dumps)
        for sentence in remarks:
            recording.remark(sentence)
        return Imported(recording, [], [])
    remarks += reading.remarks_on(found)
    runs.sort(key=lambda run: run.rank)
    told = clocks(runs)
    return Imported(recording_of(runs, told, remarks), runs, told)


def recording_of(runs: list[Run], told: list[Clock], remarks: list[str]) -> Recording:
    """The recording of examined traces, each moved to the common clock."""
    recording = Recording()
    keys = sorted({key for run in runs for key in run.numbers()}, key=lambda key: key[1:])
    numbers: dict[tuple[str, int, int], int] = {}
    counted: dict[str, int] = {}
    for key in keys:
        numbers[key] = counted.get(key[0], 0)
        counted[key[0]] = numbers[key] + 1
    host = _host(runs, told)
    size = max([run.world_size for run in runs] + [len(runs), max(run.rank for run in runs) + 1])
    for run, clock in zip(runs, told, strict=True):
        groups, group_notes = _groups(run, size)
        texts = dict.fromkeys(
            [*map(label, run.collectives), *(one.name for one in run.phases.optimizers)]
        )
        labels = {text: number for number, text in enumerate(texts, 1)}
        found = records(run, numbers, groups, labels, clock.moved_ns)
        began_ns = int(found["begin_ns"].min()) if len(found) else 0
        notes: list[Note] = [
            Process(
                rank=run.rank,
                world_size=size,
                pid=_pid(run),
                hostname=host or run.trace.host,
                torch="",
                python="",
                device="cuda" if run.on_device or run.enqueued else "cpu",
                started_ns=began_ns,
                level="trace",
            ),
            *group_notes,
            *(Label(number, text) for text, number in labels.items()),
            *_module(run, clock.moved_ns),
        ]
        recording.append(Batch(run.rank, 0, found, tuple(notes)))
    for sentence in [*doubts(runs, told), *remarks, *remarks_on(runs), *clock_remarks(told)]:
        recording.remark(sentence)
    return recording


def _host(runs: list[Run], told: list[Clock]) -> str:
    """One name for all where one clock holds for all; "" where each keeps its own."""
    hosts = sorted({run.trace.host or "a host without a name" for run in runs})
    if len(hosts) <= 1:
        return hosts[0] if hosts else ""
    return f"one clock of {', '.join(hosts)}" if all(one.matched for one in told) else ""


def _pid(run: Run) -> int:
    if not run.phases.iterations:
        return 0
    pid = run.trace.threads[run.phases.iterations[0].forward.thread][0]
    return pid if isinstance(pid, int) and 0 <= pid < 2**31 else 0


def _groups(run: Run, size: int) -> tuple[dict[str, int], list[Note]]:
    members = {
        one.collective.group: one.collective.members
        for one in run.collectives
        if one.collective.members
    }
    names = dict.fromkeys(one.collective.group for one in run.collectives)
    backend = "nccl" if run.on_device or run.enqueued else "gloo"
    said = run.trace.distributed.get("backend")
    backend = said if isinstance(said, str) and said else backend
    ids = {name: min(number, 254) for number, name in enumerate(names)}
    return ids, [
        Group(ids[name], name or "default", backend, members.get(name) or tuple(range(size)))
        for name in names
    ]


def _module(run: Run, moved_ns: int) -> list[Note]:
    """The plans, and the module where its buffers were seen: a trace has no names."""
    notes: list[Note] = []
    synced = [one for one in run.collectives if one.cause == Cause.BUFFERS]
    if synced:
        first = [one for one in synced if one.iteration == synced[0].iteration]
        notes.append(
            Module(
                id=MODULE,
                name=_NAME,
                parameters=(),
                buffers=tuple(
                    Tensor(
                        f"buffers {number}",
                        (max(one.collective.elements, 0),),
                        one.collective.dtype,
                        max(one.collective.bytes, 0),
                    )
                    for number, one in enumerate(first)
                ),
                ignored=(),
            )
        )
    for version, plan in enumerate(run.layouts):
        rebuilt = any(
            one.cause == Cause.REBUILD_ORDER and one.iteration == plan.iteration
            for one in run.collectives
        )
        begin_ns = run.phases.iterations[plan.iteration].forward.begin_ns - moved_ns
        edges = [0]
        for count in plan.counts:
            edges.append(edges[-1] + count)
        buckets = tuple(
            Bucket(
                tuple(range(edges[order], edges[order + 1])) if plan.counts else (),
                max(nbytes, 0),
                None,
            )
            for order, nbytes in enumerate(plan.sizes)
        )
        reason = "rebuild" if rebuilt else "attached"
        notes.append(Plan(MODULE, version, plan.iteration, begin_ns, reason, buckets))
    return notes
