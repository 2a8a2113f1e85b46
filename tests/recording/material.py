"""Batches as two ranks would send them, made up from a seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from ddpviz.events import (
    RECORD,
    Batch,
    Bucket,
    Group,
    Kind,
    Label,
    Module,
    Note,
    Plan,
    Process,
    Tensor,
)
from ddpviz.recording import RankWriter
from ddpviz.recording.attachments import rows_as_bytes

EPOCH_NS = 1_700_000_000_000_000_000


def process(rank: int, pid: int = 100, started_ns: int = EPOCH_NS) -> Process:
    return Process(rank, 2, pid, "host", "2.13.0", "3.12.0", "cpu", started_ns, "default")


def plan(version: int) -> Plan:
    buckets = (Bucket((1,), 400, 1024), Bucket((0,), 800, None))
    return Plan(0, version, version, EPOCH_NS, "rebuild" if version else "construction", buckets)


def first_notes(rank: int, pid: int = 100, started_ns: int = EPOCH_NS) -> tuple[Note, ...]:
    tensors = (Tensor("weight", (10, 10), "float32", 800), Tensor("bias", (10,), "float32", 400))
    return (
        process(rank, pid, started_ns),
        Label(1, f"allreduce float32 of {pid}"),
        Group(0, "default", "gloo", (0, 1)),
        Module(0, "model", tensors, (), ()),
        plan(0),
    )


def rows(count: int, rank: int = 0, seed: int = 0, begin_ns: int = EPOCH_NS) -> np.ndarray:
    """Records about 1 µs apart, some with an unknown end, some recorded late (at their end)."""
    random = np.random.default_rng(seed)
    records = np.zeros(count, RECORD)
    recorded_ns = begin_ns + np.cumsum(random.integers(1, 2000, count))
    duration_ns = random.choice([0, 10, 1_000, 100_000, 5_000_000], count)
    records["begin_ns"] = recorded_ns - duration_ns
    records["end_ns"] = np.where(random.random(count) < 0.1, 0, recorded_ns)
    records["bytes"] = random.integers(0, 1 << 40, count)
    records["step"] = np.arange(count) // 50
    records["iteration"] = records["step"]
    records["index"] = random.integers(-1, 64, count)
    records["sequence"] = random.integers(-1, 1 << 30, count)
    records["label"] = random.integers(0, 2, count)
    records["rank"] = rank
    kinds = [Kind.GRAD_READY, Kind.FORWARD, Kind.COLLECTIVE_LAUNCHED, Kind.COLLECTIVE_DONE]
    records["kind"] = random.choice(kinds, count)
    records["module"] = random.choice([0, 255], count)
    records["group"] = random.choice([0, 255], count)
    records["spare"] = 1  # as a ring leaves it on its first lap
    return records


def batches(
    count: int, size: int = 100, rank: int = 0, pid: int = 100, begin_ns: int = EPOCH_NS
) -> list[Batch]:
    """Consecutive batches; the first brings the notes, the third a rebuilt plan."""
    records = rows(count * size, rank, seed=rank + pid, begin_ns=begin_ns)
    notes = {0: first_notes(rank, pid, begin_ns), 2: (plan(1),)}
    return [
        Batch(rank, n, records[n * size : (n + 1) * size], notes.get(n, ())) for n in range(count)
    ]


def joined(sent: list[Batch]) -> np.ndarray:
    return np.concatenate([batch.records for batch in sent])


def written(directory: Path, sent: list[Batch], compression: str = "lz4") -> Path:
    """Each rank's batches, written by a writer of its own."""
    for rank in sorted({batch.rank for batch in sent}):
        writer = RankWriter(directory, rank, compression)
        for batch in sent:
            if batch.rank == rank:
                writer(batch)
        writer.close()
        writer.close()  # twice is fine
    return directory


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """In all fields but ``spare``, which a ring has for itself."""
    return rows_as_bytes(one) == rows_as_bytes(other)


def python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a program in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
