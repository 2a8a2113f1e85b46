"""Traces of compiled training: each mode of ``optimize_ddp``."""

from __future__ import annotations

from pathlib import Path

import pytest

import ddpviz
from ddpviz.events import Kind
from tests.ranks import run_ranks
from tests.traces.recorded import BYTES, PARAMETERS

MODES = ("ddp_optimizer", "no_optimization", "python_reducer")
STEPS = 3


def record(rank: int, world_size: int, folder: str) -> None:
    import torch
    import torch.distributed as dist
    from torch import _dynamo, nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.profiler import ProfilerActivity, profile

    # DDPOptimizer's first bucket is this, whatever bucket_cap_mb says, and must be the smaller.
    dist._DEFAULT_FIRST_BUCKET_BYTES = 50_000
    for mode in MODES:
        _dynamo.reset()
        _dynamo.config.optimize_ddp = mode
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Linear(64, 256),
            nn.BatchNorm1d(256),
            nn.ReLU(),
            nn.Linear(256, 256),
            nn.ReLU(),
            nn.Linear(256, 10),
        )
        ddp = DistributedDataParallel(model, bucket_cap_mb=0.1)
        compiled = torch.compile(ddp, backend="aot_eager")
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)

        def step(optimizer=optimizer, compiled=compiled) -> None:  # type: ignore[no-untyped-def]
            optimizer.zero_grad()
            compiled(torch.randn(16, 64)).sum().backward()
            optimizer.step()

        for _ in range(3):  # compiles, rebuilds, and is steady
            step()
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
            for _ in range(STEPS):
                step()
        profiler.export_chrome_trace(str(Path(folder) / f"{mode}.rank{rank}.json"))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compiled")
    run_ranks(record, 2, str(folder))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["ddp_optimizer", "no_optimization"])
def test_the_reducers_buckets_are_those_of_an_eager_run(compiled: Path, mode: str) -> None:
    recording = ddpviz.load([compiled / f"{mode}.rank{rank}.json" for rank in (0, 1)])
    steps = recording.steps()
    assert len(steps) == 2 * STEPS
    assert set(steps["buckets"]) == {2} and set(steps["bucket_bytes"]) == {BYTES}
    assert set(steps["buffer_broadcasts"]) == {2}
    ready = recording.records(kinds=Kind.GRAD_READY)
    assert len(ready) == 2 * STEPS * PARAMETERS


@pytest.mark.slow
def test_the_python_reducers_collectives_are_told_as_its_own(compiled: Path) -> None:
    paths = [compiled / f"python_reducer.rank{rank}.json" for rank in (0, 1)]
    recording = ddpviz.load(paths)
    found = recording.collectives()
    reduced = found[(found["rank"] == 0) & (found["op"] == "allreduce")]
    assert reduced.groupby("step").size().tolist() == [PARAMETERS] * STEPS
    assert not (found["cause"] == "buffers").any()
    assert any("as DDP's Python reducer issues them" in one for one in recording.remarks)
