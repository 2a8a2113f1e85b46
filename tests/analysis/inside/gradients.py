"""Gradients that hooks reduce, and replicas that part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from tests.analysis.inside.net import CAP, RANKS, train, wrapped

#: The step in which one rank's replica is changed behind DDP's back, and the rank.
CHANGED_STEP, CHANGED_RANK = 2, 1


def hook_averages(state, bucket):  # type: ignore[no-untyped-def] # DDP refuses string annotations
    work = dist.all_reduce(bucket.buffer().div_(RANKS), async_op=True)
    return work.get_future().then(lambda done: done.value()[0])


def hook_forgets(state, bucket):  # type: ignore[no-untyped-def]
    """On one rank the sum is left a sum."""
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    count = 1 if dist.get_rank() == CHANGED_RANK else RANKS
    return work.get_future().then(lambda done: done.value()[0] / count)


def with_hook(hook: Any, **arguments: Any) -> Callable[[int], None]:
    def run(rank: int) -> None:
        ddp = wrapped(bucket_cap_mb=CAP, **arguments)
        ddp.register_comm_hook(None, hook)
        train(ddp, rank, 3)

    return run


def built_in_hook(rank: int) -> None:
    ddp = wrapped(bucket_cap_mb=CAP)
    ddp._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
    train(ddp, rank, 3)


def changed_behind(rank: int) -> None:
    """One bit of one weight, on one rank, after the step before; later a NaN on all."""
    ddp = wrapped()
    train(ddp, rank, CHANGED_STEP)
    with torch.no_grad():
        if rank == CHANGED_RANK:
            ddp.module.head.weight.view(torch.int32)[3, 5] ^= 1
    train(ddp, rank, 2)
    with torch.no_grad():
        ddp.module.side.bias[:2] = torch.tensor([float("nan"), float("inf")])
    train(ddp, rank, 1)
