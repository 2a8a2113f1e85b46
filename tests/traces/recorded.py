"""Small profiler traces of real runs, two gloo ranks each: what the readers' tests read."""

from __future__ import annotations

import contextlib
from pathlib import Path

#: Steps of each run.
STEPS = 5
#: Parameters of the model: three Linear and a BatchNorm layer, with weight and bias each.
PARAMETERS = 8
#: Bytes of its parameters' gradients.
BYTES = 4 * (64 * 256 + 256 + 2 * 256 + 256 * 256 + 256 + 256 * 10 + 10)
MODES = ("eager", "stack", "no_sync", "unused", "views")


def record(rank: int, world_size: int, folder: str) -> None:
    """A trace of each mode into ``folder``, as MODE.rankN.json."""
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.profiler import ProfilerActivity, profile

    for mode in MODES:
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Linear(64, 256),
            nn.BatchNorm1d(256),
            nn.ReLU(),
            nn.Linear(256, 256),
            nn.ReLU(),
            nn.Linear(256, 10),
        )
        ddp = DistributedDataParallel(
            model,
            bucket_cap_mb=0.1,
            find_unused_parameters=mode == "unused",
            gradient_as_bucket_view=mode == "views",
        )
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
        with profile(
            activities=[ProfilerActivity.CPU],
            record_shapes=mode != "eager",
            with_stack=mode == "stack",
        ) as profiler:
            for step in range(STEPS):
                skipped = mode == "no_sync" and step % 2 == 0
                optimizer.zero_grad()
                with ddp.no_sync() if skipped else contextlib.nullcontext():
                    ddp(torch.randn(16, 64)).sum().backward()
                optimizer.step()
                if mode == "stack":
                    profiler.step()
        profiler.export_chrome_trace(str(Path(folder) / f"{mode}.rank{rank}.json"))
