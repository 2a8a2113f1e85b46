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
#: Steps of the runs in which something is to be found.
LONG = 8


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


def record_odd(rank: int, world_size: int, folder: str) -> None:
    """Runs with something to find in them, after warm steps, as NAME.rankN.json."""
    import time
    from collections.abc import Callable

    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
    from torch.nn.parallel import DistributedDataParallel
    from torch.profiler import ProfilerActivity, profile

    class Sending(nn.Module):
        """A model without buffers that sends something itself."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(64, 64), nn.Linear(64, 10)

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            hidden = self.first(batch)
            dist.broadcast(torch.ones(1000), 0)
            out: torch.Tensor = self.last(hidden)
            return out

    def chain(width: int = 256) -> nn.Module:
        return nn.Sequential(
            nn.Linear(64, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 10)
        )

    def run(
        name: str,
        *models: DistributedDataParallel,
        after: Callable[[], object] = lambda: None,
        backwards: int = 1,
        warm: bool = True,
        **profiling: bool,
    ) -> None:
        optimizer = torch.optim.SGD([one for ddp in models for one in ddp.parameters()], lr=0.01)

        def step() -> None:
            optimizer.zero_grad()
            for ddp in models:
                for _ in range(backwards):
                    ddp(torch.randn(16, 64)).sum().backward()
            optimizer.step()
            after()

        for _ in range(3 if warm else 0):
            step()
        dist.barrier()
        with profile(activities=[ProfilerActivity.CPU], **profiling) as profiler:
            for _ in range(LONG):
                step()
        profiler.export_chrome_trace(str(Path(folder) / f"{name}.rank{rank}.json"))
        dist.barrier()

    def reduce_own() -> None:
        dist.all_reduce(torch.ones(1000))

    wrap = DistributedDataParallel
    for stack in (False, True):
        run(
            "users_stack" if stack else "users",
            wrap(Sending(), broadcast_buffers=False),
            after=reduce_own,
            warm=False,
            with_stack=stack,
        )
    run("late", wrap(chain()), after=lambda: time.sleep(0.03 if rank == 1 else 0))
    run("accumulating", wrap(chain()), backwards=3, record_shapes=True)
    run("views", wrap(chain(), gradient_as_bucket_view=True))
    hooked = wrap(chain())
    hooked.register_comm_hook(None, fp16_compress_hook)
    run("hook", hooked, record_shapes=True)
    run("two", wrap(chain()), wrap(chain(128)), record_shapes=True)
