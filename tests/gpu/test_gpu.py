"""Recording on a GPU changes nothing, adds no wait of the host, and has the device's times."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import ddpviz
from ddpviz import Session
from ddpviz.events import Cause, Clock, DeviceClock, Flag, Kind
from tests.gpu import training
from tests.gpu.ranks import run_gpu_ranks, worlds

STEPS = 8
WORLDS = pytest.mark.parametrize(("backend", "world_size"), worlds())
#: What makes the host wait for the device.
WAITS = ("cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize")
#: How far apart a time and the profiler's may be: so many ns, or this share.
NEAR_NS, NEAR_SHARE = 20_000, 0.02


def trained(rank: int, device: torch.device, out: str | None) -> str:
    ddp = training.build(device)
    attachment = None if out is None else ddpviz.attach(ddp, out)
    training.train(ddp, rank, device, STEPS)
    if attachment is not None:
        attachment.close()
    return training.fingerprint(ddp)


@WORLDS
def test_every_bit_is_the_same(tmp_path: Path, backend: str, world_size: int) -> None:
    bare = run_gpu_ranks(trained, world_size, backend, None)
    recorded = run_gpu_ranks(trained, world_size, backend, str(tmp_path / "run"))
    assert bare == recorded
    recording = ddpviz.load(tmp_path / "run")
    steps = recording.steps()
    assert len(steps) == STEPS * world_size and not steps["enqueued"].any()
    assert steps["exposed_communication_ms"].notna().all()
    done = recording.records(kinds=Kind.COLLECTIVE_DONE)
    assert (done["clock"] == Clock.CUDA).mean() > 0.9
    assert ((done["flags"] & Flag.ENQUEUED) == 0).all()
    for note in recording.notes(DeviceClock):
        assert note.uncertainty_ns < 1_000_000 and abs(note.drift_ppm) < 1_000


def waits(rank: int, device: torch.device, out: str) -> list[dict[str, int]]:
    """Calls that wait for the device, in the profile of some steps: bare, and recorded."""
    ddp = training.build(device)
    training.train(ddp, rank, device, 3)
    found = []
    for attached in (False, True):
        attachment = ddpviz.attach(ddp, out) if attached else None
        training.train(ddp, rank, device, 2)
        profiler = training.profiled(lambda: training.train(ddp, rank, device, STEPS))
        if attachment is not None:
            attachment.close()
        names = collections.Counter(event.name for event in profiler.events())
        found.append({name: names[name] for name in WAITS})
    return found


@WORLDS
def test_the_host_waits_no_more_than_without(tmp_path: Path, backend: str, world_size: int) -> None:
    for bare, recorded in run_gpu_ranks(waits, world_size, backend, str(tmp_path / "run")):
        assert recorded == bare


def beside_profiler(rank: int, device: torch.device, out: str) -> Any:
    """Collectives as recorded and the profiler's kernels of them, both in ns since the epoch."""
    ddp = training.build(device, width=256)
    training.train(ddp, rank, device, 3)
    with ddpviz.attach(ddp, out):
        training.train(ddp, rank, device, 2)
        profiler = training.profiled(lambda: training.train(ddp, rank, device, STEPS))
    profiler.export_chrome_trace(f"{out}.rank{rank}.json")
    return f"{out}.rank{rank}.json"


@WORLDS
def test_times_are_those_of_the_profilers_kernels(
    tmp_path: Path, backend: str, world_size: int
) -> None:
    paths = run_gpu_ranks(beside_profiler, world_size, backend, str(tmp_path / "run"))
    recording = ddpviz.load(tmp_path / "run")
    traced = ddpviz.load([Path(path) for path in paths])
    for rank in range(world_size):
        ours = recording.records(kinds=Kind.COLLECTIVE_DONE, ranks=rank)
        theirs = traced.records(kinds=Kind.COLLECTIVE_DONE, ranks=rank)
        theirs = theirs[(theirs["end_ns"] > 0) & ((theirs["flags"] & Flag.ENQUEUED) == 0)]
        if not len(theirs):
            pytest.skip("NCCL runs no kernel for a world of one")
        ends = np.sort(ours["end_ns"])
        nearest = np.abs(ends[:, None] - theirs["end_ns"][None, :]).min(axis=0)
        lengths = theirs["end_ns"] - theirs["begin_ns"]
        assert np.median(nearest) <= max(NEAR_NS, NEAR_SHARE * np.median(lengths))


def normalized(rank: int, device: torch.device, out: str) -> None:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    model = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(*layers, nn.Linear(8, 4)))
    ddp = DDP(model.to(device), device_ids=[device])
    with ddpviz.attach(ddp, out):
        training.train(ddp, rank, device, STEPS)


@WORLDS
def test_collectives_of_sync_batch_norm_are_told_as_such(
    tmp_path: Path, backend: str, world_size: int
) -> None:
    run_gpu_ranks(normalized, world_size, backend, str(tmp_path / "run"))
    launched = ddpviz.load(tmp_path / "run").records(kinds=Kind.COLLECTIVE_LAUNCHED)
    mine = launched[launched["cause"] == Cause.SYNC_BATCH_NORM]
    # Statistics in each forward, and their gradients in each backward; one rank alone needs none.
    assert len(mine) == (2 * STEPS * world_size if world_size > 1 else 0)
    assert not (launched["cause"] == Cause.USER).any()


def test_a_session_puts_each_rank_on_a_gpu_and_draws_it() -> None:
    count = torch.cuda.device_count()
    with Session(engines=count) as session:
        assert session.status().backend == "nccl"
        session.load("convnet")
        session.run(6)
        assert len(set(session.checksums().values())) == 1
        steps = session.recording.steps()
        assert not steps["enqueued"].any()
        assert session.recording.figure("timeline") is not None


def test_more_ranks_than_gpus_are_on_gloo_and_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    with Session(engines=torch.cuda.device_count() + 1) as session:
        assert session.status().backend == "gloo"
        session.load("convnet")
        session.run(3)
        assert len(set(session.checksums().values())) == 1
    assert "more ranks than GPUs" in capsys.readouterr().err


def captured(rank: int, device: torch.device, out: str) -> list[float]:
    """A CUDA graph is captured and replayed while it is recorded."""
    ddp = training.build(device)
    with ddpviz.attach(ddp, out) as attachment:
        attachment.recorder.flush_interval_s = 0.001
        training.train(ddp, rank, device, 3)
        still = torch.ones(4, device=device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            doubled = still * 2
        for value in (1.0, 3.0):
            still.fill_(value)
            graph.replay()
        training.train(ddp, rank, device, 2)
        found: list[float] = doubled.tolist()
    return found


def test_a_graph_is_captured_as_without(tmp_path: Path) -> None:
    assert run_gpu_ranks(captured, 1, "nccl", str(tmp_path / "run")) == [[6.0] * 4]
    assert len(ddpviz.load(tmp_path / "run").steps()) == 5
