"""Runs that are recorded on real ranks, one after the other in the same processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ddpviz.events import Batch
from ddpviz.recording import Recording
from tests.ranks import run_ranks

#: By name, a function of the rank.
Runs = dict[str, Callable[[int], None]]


def runs(*all_: Callable[[int], None]) -> Runs:
    """By their names."""
    return {one.__name__: one for one in all_}


def recordings(
    runs: Runs, world_size: int = 2, fingerprints: int = 1, level: str = "default"
) -> dict[str, Recording]:
    """Each run's recording, of all ranks. They share processes and the process group."""
    of_ranks = run_ranks(_all, world_size, runs, fingerprints, level)
    found = {}
    for name in runs:
        recording = found[name] = Recording()
        for of_rank in of_ranks:
            for data in of_rank[name]:
                recording.append(Batch.from_bytes(data))
    return found


def _all(
    rank: int, world_size: int, runs: Runs, fingerprints: int, level: str
) -> dict[str, list[bytes]]:
    return {name: record(run, rank, fingerprints, level) for name, run in runs.items()}


def record(
    run: Callable[[int], None], rank: int, fingerprints: int = 1, level: str = "default"
) -> list[bytes]:
    """One run's batches."""
    from ddpviz.probe import Recorder

    batches: list[Any] = []
    recorder = Recorder(
        sinks=[lambda batch: batches.append(batch.to_bytes())],
        fingerprints=fingerprints,
        level=level,
        flush_interval_s=30.0,
    )
    recorder.install()
    torch.manual_seed(0)
    try:
        run(rank)
    finally:
        recorder.close()
    return batches
