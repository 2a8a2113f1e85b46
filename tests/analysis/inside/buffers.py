"""What DDP does with buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.parallel.distributed import _BufferCommHookLocation as Location

from tests.analysis.inside.net import CAP, RANKS, Net, backward, train, wrapped


def around_no_sync(rank: int) -> None:
    """Six forwards, the second and the third in no_sync."""
    ddp = wrapped()
    for number in range(6):
        if number in (1, 2):
            with ddp.no_sync():
                backward(ddp, rank, number)
        else:
            backward(ddp, rank, number)


def around_eval(rank: int) -> None:
    """A step, three forwards without gradients, two steps."""
    ddp = wrapped()
    train(ddp, rank, 1)
    ddp.eval()
    with torch.no_grad():
        for _ in range(3):
            ddp(torch.ones(1, 3, 6, 6))
    ddp.train()
    train(ddp, rank, 2)


def switched_off(rank: int) -> None:
    train(wrapped(broadcast_buffers=False), rank, 2)


def without_buffers(rank: int) -> None:
    ddp = wrapped(nn.Linear(2, 2))
    for _ in range(2):
        ddp(torch.ones(1, 2)).sum().backward()


def drifting(rank: int) -> None:
    """Four steps; and a buffer that nobody writes to."""
    model = Net()
    model.register_buffer("constant", torch.arange(3.0))
    train(wrapped(model), rank, 4)


def reassigned(rank: int) -> None:
    ddp = wrapped()
    train(ddp, rank, 2)
    ddp.module.norm.running_mean = torch.full((8,), float(rank))
    ddp.module.register_buffer("late", torch.zeros(1))
    train(ddp, rank, 2)


def hooked(location: Location) -> Callable[[int], None]:
    def run(rank: int) -> None:
        ddp = wrapped()
        ddp._register_buffer_comm_hook(None, averaged, location)
        train(ddp, rank, 3)

    return run


def averaged(state: object, buffers: dict[str, torch.Tensor]) -> Any:
    works = []
    for buffer in buffers.values():
        buffer //= RANKS if buffer.dtype is torch.int64 else 1
        if buffer.is_floating_point():
            buffer /= RANKS
        works.append(dist.all_reduce(buffer, async_op=True))
    return [work.get_future() for work in works]


def hooked_on_the_group(rank: int) -> None:
    """A buffer hook that sends over the module's own group."""
    ddp = wrapped()

    def sums(state: object, buffers: dict[str, torch.Tensor]) -> Any:
        for buffer in buffers.values():
            if buffer.is_floating_point():
                dist.all_reduce(buffer, group=ddp.process_group)
        return []

    ddp._register_buffer_comm_hook(None, sums, Location.PRE_FORWARD)
    train(ddp, rank, 2)


def repaired(rank: int) -> None:
    """Rank 1 writes to a buffer that is constant elsewhere, before each forward."""
    model = Net()
    model.register_buffer("table", torch.arange(3.0))
    ddp = wrapped(model)
    for number in range(4):
        if rank == 1:
            ddp.module.table += 1
        backward(ddp, rank, number)


def stages(rank: int) -> None:
    """Ranks 0 and 1 have one model, rank 2 another, as stages of a pipeline have."""
    groups = [dist.new_group([0, 1]), dist.new_group([2])]
    torch.manual_seed(7 if rank < 2 else 8)
    train(DDP(Net(), process_group=groups[rank == 2]), rank, 2)


def put_off(rank: int) -> None:
    """One parameter is reduced by a hook of its own."""
    model = Net()
    weight = model.conv.weight
    ddp = wrapped(
        model,
        delay_all_reduce_named_params=[("conv.weight", weight)],
        param_to_hook_all_reduce=weight,
    )
    train(ddp, rank, 2)


def joined(rank: int) -> None:
    """Rank 2 has no batch, rank 1 two, rank 0 four."""
    ddp = wrapped(Net(), bucket_cap_mb=CAP)
    with Join([ddp]):
        for number in range((4, 2, 0)[rank]):
            backward(ddp, rank, number)


def joined_by_rest(rank: int) -> None:
    """As joined; gradients are divided by the ranks that are left."""
    ddp = wrapped(Net(), bucket_cap_mb=CAP)
    with Join([ddp], divide_by_initial_world_size=False):
        for number in range((4, 2, 0)[rank]):
            backward(ddp, rank, number)
