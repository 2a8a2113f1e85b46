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
    Unavailable,
)
from ddpviz.recording import Recording
from ddpviz.traces import exported, flight, reading
from ddpviz.traces.clocks import Clock, clocks
from ddpviz.traces.errors import TraceError
from ddpviz.traces.records import MODULE, label, records
from ddpviz.traces.runs import Run, examine

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
            Unavailable(MODULE, "walk", began_ns, "a trace has no walk of its own"),
        ]
        recording.append(Batch(run.rank, 0, found, tuple(notes)))
    for sentence in [*remarks, *_remarks(runs), *clock_remarks(told)]:
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


def _remarks(runs: list[Run]) -> list[str]:
    remarks = []
    ddp = any(run.phases.iterations for run in runs)
    if not ddp:
        remarks.append(
            "found no forward of DistributedDataParallel in the trace: its steps are the "
            "profiler's, and why a collective was issued is not known"
        )
    on_device = [run for run in runs if run.on_device]
    if on_device:
        remarks.append(
            "times are those of the GPU's streams: each part is told by the kernels that it "
            "launched, a collective by its NCCL kernel"
        )
    if any(run.enqueued for run in runs):
        remarks.append(
            "the trace has no kernels: when collectives ran is not known, only when the host "
            "enqueued them; record it with ProfilerActivity.CUDA"
        )
    evidence = sorted({plan.evidence for run in runs for plan in run.layouts if plan.evidence})
    for told in evidence:
        remarks.append(f"bucket plans are inferred: {told}")
    if any(not plan.counts for run in runs for plan in run.layouts):
        remarks.append(
            "which gradients are in which bucket could not be told: buckets were launched with "
            "no gradient between them, and the trace has no shapes"
        )
    if evidence:
        remarks.append(
            "a trace has no names of parameters: they are numbered as their buckets were launched"
        )
    if any(one.collective.bytes < 0 for run in runs for one in run.collectives):
        remarks.append(
            "the trace has no sizes, so that bytes are shown as 0: record it with "
            "record_shapes=True"
        )
    return remarks


def clock_remarks(told: list[Clock]) -> list[str]:
    """How each rank's clock was moved, a sentence each."""
    remarks = []
    for one in told[1:]:
        if not one.matched:
            remarks.append(
                f"rank {one.rank} shares no collective with rank {told[0].rank} in these traces: "
                "its clock was left as it is"
            )
        elif one.moved_ns:
            remarks.append(
                f"rank {one.rank}'s clock was {one.offset_ns / 1e3:+.1f} µs from rank "
                f"{told[0].rank}'s and is corrected (± {one.residual_ns / 1e3:.1f} µs, from "
                f"{one.matched} collectives)"
            )
        elif one.one_host:
            remarks.append(
                f"ranks {told[0].rank} and {one.rank} are on one host, so on one clock, which was "
                f"left as it is: {one.matched} collectives end {one.offset_ns / 1e3:+.1f} µs apart "
                f"(median, ± {one.residual_ns / 1e3:.1f} µs)"
            )
        else:
            remarks.append(
                f"rank {one.rank}'s clock agrees with rank {told[0].rank}'s within "
                f"{one.residual_ns / 1e3:.1f} µs, as far as {one.matched} collectives tell"
            )
    return remarks
