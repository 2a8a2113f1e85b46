"""Real runs under comm hooks that average, or part from the mean on purpose."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer

from tests.audit.nets import (
    Two,
    batch,
    image,
    local_state,
    sgd,
    train,
    wrap,
)
from tests.audit.recorded import runs


def local_sgd_hooked(rank: int) -> None:
    """torch's own local SGD: replicas part between two averagings."""
    ddp = wrap(Two())
    ddp.register_comm_hook(local_state(2), post_localSGD_hook)
    averager = PeriodicModelAverager(period=3, warmup_steps=2)
    train(rank, ddp, 7, PostLocalSGDOptimizer(sgd(ddp), averager))


def averaging(state, bucket):  # type: ignore[no-untyped-def] # DDP refuses string annotations
    tensor = bucket.buffer().div_(dist.get_world_size())
    return dist.all_reduce(tensor, async_op=True).get_future().then(lambda done: done.value()[0])


def hooked(rank: int) -> None:
    ddp = wrap(Two(), bucket_cap_mb=0.0003)
    ddp.register_comm_hook(None, averaging)
    train(rank, ddp)


def hooked_views(rank: int) -> None:
    ddp = wrap(nn.Conv2d(64, 8, 3).to(memory_format=torch.channels_last), bucket_cap_mb=0.001)
    ddp.register_comm_hook(None, averaging)
    train(rank, ddp, make=image)


def half_precision(rank: int) -> None:
    ddp = wrap(Two())
    ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    train(rank, ddp)


def low_rank(rank: int) -> None:
    """PowerSGD hands back something near the mean, on purpose."""
    ddp = wrap(Two(32))
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    train(rank, ddp, 8, make=lambda rank, step: batch(rank, step, 32))


HEALTHY = runs(
    local_sgd_hooked,
    hooked,
    hooked_views,
    half_precision,
    low_rank,
)
