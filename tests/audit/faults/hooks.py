"""Real runs under a comm hook that does not average among all."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    post_localSGD_hook,
)

from tests.audit.nets import (
    Two,
    local_state,
    train,
    wrap,
)
from tests.audit.recorded import runs


def local_hook(state, bucket):  # type: ignore[no-untyped-def] # DDP refuses string annotations
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def summing_hook(state, bucket):  # type: ignore[no-untyped-def]
    future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return future.then(lambda done: done.value()[0])


def twice_hook(state, bucket):  # type: ignore[no-untyped-def]
    world = dist.get_world_size()
    future = dist.all_reduce(bucket.buffer().div_(world), async_op=True).get_future()
    return future.then(lambda done: done.value()[0].div_(world))


def thirds_hook(state, bucket):  # type: ignore[no-untyped-def]
    future = dist.all_reduce(bucket.buffer().div_(3), async_op=True).get_future()
    return future.then(lambda done: done.value()[0])


def constant_hook(state, bucket):  # type: ignore[no-untyped-def]
    generator = torch.Generator().manual_seed(5)
    future = torch.futures.Future()
    future.set_result(torch.randn(bucket.buffer().shape, generator=generator))
    return future


def _hooked(hook, steps=3):  # type: ignore[no-untyped-def]
    def run(rank: int) -> None:
        ddp = wrap(Two(), bucket_cap_mb=0.0003)
        ddp.register_comm_hook(None, hook)
        train(rank, ddp, steps)

    return run


def hook_local(rank: int) -> None:
    _hooked(local_hook)(rank)


def hook_sums(rank: int) -> None:
    _hooked(summing_hook)(rank)


def hook_twice(rank: int) -> None:
    _hooked(twice_hook)(rank)


def hook_divides_alike(rank: int) -> None:
    """By three, on two ranks."""
    _hooked(thirds_hook)(rank)


def hook_constant(rank: int) -> None:
    _hooked(constant_hook, 6)(rank)


def never_averaged(rank: int) -> None:
    """torch's hook of local SGD from step 2 on, and nothing that averages parameters."""
    ddp = wrap(Two())
    ddp.register_comm_hook(local_state(2), post_localSGD_hook)
    train(rank, ddp, 4)


def inside_hook(group, bucket):  # type: ignore[no-untyped-def]
    future = dist.all_reduce(bucket.buffer(), group=group, async_op=True).get_future()
    return future.then(lambda done: done.value()[0])


def hook_inside(rank: int) -> None:
    """A hook that averages in groups of one rank each, and nothing that averages parameters."""
    groups = [dist.new_group([one]) for one in range(dist.get_world_size())]
    ddp = wrap(Two(), bucket_cap_mb=0.0003)
    ddp.register_comm_hook(groups[rank], inside_hook)
    train(rank, ddp, 3)


FAULTS = runs(
    hook_local,
    hook_sums,
    hook_twice,
    hook_divides_alike,
    hook_constant,
    never_averaged,
    hook_inside,
)
