"""Recordings written by hand: every time is known, so every rectangle can be counted.

Times are whole microseconds. Per step of 100 ms: forward 0–30 (buffer broadcast 0–2), backward
from 32; gradients ready one per 4 ms; each bucket is launched 1 ms after it is full and is
complete 1 ms after the last rank launched it.
"""

from __future__ import annotations

import numpy as np

from ddpviz.events import (
    NO_GROUP,
    NO_MODULE,
    RECORD,
    Argument,
    Batch,
    Bucket,
    Cause,
    Clock,
    Compiled,
    Flag,
    Graph,
    Group,
    Kind,
    Label,
    Module,
    Note,
    Part,
    Plan,
    Process,
    Split,
    Tensor,
)
from ddpviz.recording import UNNUMBERED, Recording

ZERO_NS = 1_700_000_000_000_000_000
STEP_NS = 100_000_000
MS = 1_000_000


def record(kind: Kind, begin_ns: int, end_ns: int, **fields: int) -> np.ndarray:
    """One record; what is not given is unused."""
    row = np.zeros(1, RECORD)
    row["kind"], row["begin_ns"], row["end_ns"] = kind, begin_ns, end_ns
    for name in ("bytes", "iteration", "index", "sequence"):
        row[name] = -1
    row["module"], row["group"] = NO_MODULE, NO_GROUP
    for name, value in fields.items():
        row[name] = value
    return row


def sample_recording(
    steps: int = 3,
    ranks: int = 2,
    buckets: int = 3,
    parameters_per_bucket: int = 2,
    name: str = "ConvNet",
    parameter: str = "layer{index}.weight",
    slow_ms: int = 20,
    hosts: tuple[str, ...] = ("host",),
) -> Recording:
    """A recording in which rank 0's backward starts ``slow_ms`` later than on the others.

    ``hosts``: names, for one rank after the other and again from the first.
    The first step has one bucket of all parameters; the plan is rebuilt in step 1, with one
    collective of cause REBUILD_ORDER.
    """
    count = buckets * parameters_per_bucket
    tensors = tuple(
        Tensor(parameter.format(index=index), (256, 256), "float32", 262_144)
        for index in range(count)
    )
    first = Plan(0, 0, 0, ZERO_NS, "construction", (_bucket(range(count), None),))
    # The last parameters are ready first.
    groups = np.split(np.arange(count)[::-1], buckets)
    rebuilt = Plan(
        0,
        1,
        1,
        ZERO_NS + STEP_NS,
        "rebuild",
        tuple(_bucket(group.tolist(), 2**19) for group in groups),
    )
    recording = Recording()
    for rank in range(ranks):
        notes: tuple[Note, ...] = (
            Process(
                rank,
                ranks,
                1,
                hosts[rank % len(hosts)],
                "2.13.0",
                "3.11",
                "cpu",
                ZERO_NS,
                "default",
            ),
            Group(0, "default", "gloo", tuple(range(ranks))),
            Module(0, name, tensors, (Tensor("mean", (64,), "float32", 256),), ()),
            Label(1, "allreduce float32"),
            Label(2, "broadcast float32"),
            Label(3, "SGD"),
            first,
            rebuilt,
        )
        rows = []
        sequence = 0
        for step in range(steps):
            made, sequence = _step(
                rank, ranks, step, first if step == 0 else rebuilt, sequence, slow_ms
            )
            rows += made
        recording.append(Batch(rank, 0, np.concatenate(rows), notes))
    return recording


def batches_of(recording: Recording) -> list[Batch]:
    """One batch per rank with all it recorded, notes included."""
    kinds = (Process, Group, Module, Label, Plan)
    return [
        Batch(
            rank,
            0,
            recording.records(ranks=rank),
            tuple(note for kind in kinds for note in recording.notes(kind, rank=rank)),
        )
        for rank in recording.ranks
    ]


def on_cuda(recording: Recording) -> Recording:
    """The same run as a host records it on CUDA: collectives end, and finalize too, at once."""
    twin = Recording()
    for batch in batches_of(recording):
        records = batch.records
        done = records["kind"] == Kind.COLLECTIVE_DONE
        records["flags"][done] |= np.uint16(Flag.ENQUEUED)
        at_once = done | (records["kind"] == Kind.FINALIZE)
        records["end_ns"][at_once] = records["begin_ns"][at_once] + 10_000
        twin.append(batch)
    return twin


def construct(
    recording: Recording, begin_ms: int, end_ms: int, module: int = 0, late_ms: int = 0
) -> None:
    """A construction of ``module`` on every rank, on rank 1 ``late_ms`` later; with a collective.

    Times since the begin of the first step.
    """
    for rank in recording.ranks:
        begin = ZERO_NS + (begin_ms + late_ms * (rank == 1)) * MS
        length = (end_ms - begin_ms) * MS
        common = {"rank": rank, "module": module, "step": -1}
        first = record(Kind.CONSTRUCTION_GROUP, begin, begin + MS, flags=Flag.DERIVED, **common)
        parts = [
            record(Kind.CONSTRUCTION_VERIFY, begin + MS, begin + 3 * MS, **common),
            record(Kind.CONSTRUCTION, begin, begin + length, **common),
            first,
        ]
        sequence = 1000 + begin_ms
        parts += _collective(Cause.VERIFY, begin + MS, begin + 2 * MS, sequence, 2, 8, -1, **common)
        recording.append(Batch(rank, UNNUMBERED, np.concatenate(parts)))


def compile_it(
    recording: Recording, graphs: list[list[int]], code: str = "def forward(self): ..."
) -> None:
    """Notes of ``torch.compile`` by DDPOptimizer on every rank, before the first step.

    ``graphs``: parameters of each subgraph, in the order of the forward.
    """
    where = ("0/0", "inductor", "forward", "model.py", 3)
    for rank in recording.ranks:
        sizes = [len(graph) * 262_144 for graph in graphs]
        arguments = [tuple(Argument(f"p{one}_", one) for one in graph) for graph in graphs]
        every = tuple(one for some in arguments for one in some)
        made = [
            Graph(0, 0, -1, ZERO_NS, "forward", *where, 9, (), every, sum(sizes), code, ""),
            *(
                Graph(n + 1, 0, 0, ZERO_NS, "subgraph", *where, 3, (), arguments[n], size, code, "")
                for n, size in enumerate(sizes)
            ),
        ]
        how = Compiled(
            0, 0, ZERO_NS, "ddp_optimizer", "C++", "inductor", "wrap then compile", False
        )
        parts = tuple(
            Part(3, tuple(graph), size, 0, 0) for graph, size in zip(graphs, sizes, strict=True)
        )
        ids = tuple(range(1, len(graphs) + 1))
        split = Split(0, 0, ZERO_NS, 2**19, 2**19, parts, ids)
        recording.append(Batch(rank, UNNUMBERED, np.zeros(0, RECORD), (how, *made, split)))


def _bucket(parameters: range | list[int], limit_bytes: int | None) -> Bucket:
    return Bucket(tuple(parameters), len(parameters) * 262_144, limit_bytes)


def _step(
    rank: int, ranks: int, step: int, plan: Plan, sequence: int, slow_ms: int
) -> tuple[list[np.ndarray], int]:
    zero = ZERO_NS + step * STEP_NS
    common = {"step": step, "iteration": step, "rank": rank, "module": 0}
    late = slow_ms * MS if rank == 0 else 0
    rows = [
        record(Kind.FORWARD, zero, zero + 30 * MS, **common),
        record(Kind.BUFFER_SYNC, zero, zero + 2 * MS, bytes=256, index=1, **common),
        record(Kind.MODULE_FORWARD, zero + 2 * MS, zero + 29 * MS, **common),
        record(Kind.PREPARE_FOR_BACKWARD, zero + 29 * MS, zero + 29 * MS + 1000, **common),
    ]
    rows += _collective(Cause.BUFFERS, zero, zero + 2 * MS, sequence, 2, 256, -1, **common)
    sequence += 1
    if step == 1:
        rows.append(record(Kind.REBUILD, zero + 2 * MS, zero + 4 * MS, index=1, **common))
        begin = zero + 2 * MS
        rows += _collective(Cause.REBUILD_ORDER, begin, begin + MS, sequence, 2, 64, -1, **common)
        sequence += 1
    now = zero + 32 * MS
    launches = []
    for bucket in plan.buckets:
        for index in bucket.parameters:
            now += 4 * MS
            at = now + late
            rows.append(
                record(
                    Kind.GRAD_READY,
                    at,
                    at,
                    index=index,
                    bytes=262_144,
                    clock=Clock.REDUCER,
                    **common,
                )
            )
        launches.append((bucket, now + MS))
    last_late = slow_ms * MS
    for position, (bucket, launch) in enumerate(launches):
        done = launch + last_late + MS if ranks > 1 else launch + late + MS
        rows += _collective(
            Cause.BUCKET, launch + late, done, sequence, 1, bucket.bytes, position, **common
        )
        sequence += 1
    local = launches[-1][1] + late + 500_000
    final = launches[-1][1] + last_late + 2 * MS
    rows += [
        record(Kind.FINALIZE, local, final, index=len(launches), **common),
        record(Kind.BACKWARD, zero + 32 * MS, final + 1000, **common),
        record(Kind.OPTIMIZER, final + 2000, final + 3 * MS, label=3, **common),
        record(Kind.STEP, zero, final + 3 * MS, step=step, rank=rank),
    ]
    return rows, sequence


def _collective(
    cause: Cause,
    begin: int,
    end: int,
    sequence: int,
    label: int,
    size: int,
    index: int,
    **common: int,
) -> list[np.ndarray]:
    fields = {
        "cause": cause,
        "sequence": sequence,
        "label": label,
        "bytes": size,
        "group": 0,
        "index": index,
        **common,
    }
    return [
        record(Kind.COLLECTIVE_LAUNCHED, begin, begin, **fields),
        record(Kind.COLLECTIVE_DONE, begin, end, **fields),
    ]
