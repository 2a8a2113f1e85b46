"""Real runs whose replicas part, or begin apart."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from tests.audit.nets import (
    Ordered,
    Two,
    batch,
    sgd,
    train,
    wrap,
)
from tests.audit.recorded import runs


def changed_after(rank: int) -> None:
    """Each rank scales its gradients by a number of its own, in step 1."""
    ddp = wrap(Two())

    def scale(step: int) -> None:
        if step == 1:
            for parameter in ddp.parameters():
                parameter.grad.mul_(1.0 + rank)

    train(rank, ddp, 2, before_step=scale)


def initial_state(rank: int) -> None:
    torch.manual_seed(rank)
    train(rank, wrap(Two(), init_sync=False), 2)


def learning_rate(rank: int) -> None:
    ddp = wrap(Two())
    train(rank, ddp, 1, sgd(ddp, 0.1))
    train(rank, ddp, 2, sgd(ddp, 0.1 + rank))


def parted_for_a_while(rank: int) -> None:
    """Rank 1 changes a weight after step 1; after step 3 all take rank 0's."""
    ddp = wrap(Two())
    optimizer = sgd(ddp)
    for step in range(6):
        train(rank, ddp, 1, optimizer)
        with torch.no_grad():
            if step == 1 and rank == 1:
                ddp.module.first.weight.add_(0.01)
            if step == 3:
                for parameter in ddp.parameters():
                    dist.broadcast(parameter, 0)


def swapped(rank: int) -> None:
    """Step 2: rank 0 sums a tensor of its own before its backward, rank 1 after it. It is as large
    as the bucket, so gloo adds the one to the other without a word."""
    group = dist.new_group()
    ddp = wrap(nn.Linear(8, 4), process_group=group)
    optimizer = sgd(ddp)
    train(rank, ddp, 2, optimizer)
    own = torch.ones(8 * 4 + 4)
    optimizer.zero_grad()
    loss = ddp(batch(rank, 2)).square().mean()
    if rank == 0:
        dist.all_reduce(own, group=group)
    loss.backward()
    if rank == 1:
        dist.all_reduce(own, group=group)
    optimizer.step()


def rounded(rank: int) -> None:
    """Each rank moves its weights by its own gradients, and back by the same: that rounds."""
    ddp = wrap(Two(32))
    optimizer = sgd(ddp)
    for step in range(3):
        optimizer.zero_grad()
        with ddp.no_sync():
            ddp(batch(rank, step, 32)).square().mean().backward()
        moves = [0.1 * parameter.grad for parameter in ddp.parameters()]
        with torch.no_grad():
            for parameter, move in zip(ddp.parameters(), moves, strict=True):
                parameter.add_(move)
        optimizer.zero_grad()
        ddp(batch(rank, step, 32)).square().mean().backward()
        with torch.no_grad():
            for parameter, move in zip(ddp.parameters(), moves, strict=True):
                parameter.sub_(move)
        optimizer.step()


def local_sgd(rank: int) -> None:
    """All in no_sync, and parameters averaged after steps 1 and 3: right, if it is meant."""
    ddp = wrap(Two())
    optimizer = sgd(ddp)
    for step in range(0, 4, 2):
        with ddp.no_sync():
            train(rank, ddp, 2, optimizer, first=step)
        for parameter in ddp.parameters():
            dist.all_reduce(parameter.data)
            parameter.data /= dist.get_world_size()


def step_on_one(rank: int) -> None:
    """From step 1 on rank 0 alone steps."""
    ddp = wrap(Two())
    optimizer = sgd(ddp)
    train(rank, ddp, 1, optimizer)
    for step in range(1, 4):
        optimizer.zero_grad()
        ddp(batch(rank, step)).square().mean().backward()
        if rank == 0:
            optimizer.step()


def second_optimizer(rank: int) -> None:
    """From step 2 on rank 1 steps one of two optimizers only."""
    ddp = wrap(Two())
    optimizers = [sgd(ddp.module.first), sgd(ddp.module.second)]
    for step in range(4):
        ddp.zero_grad()
        ddp(batch(rank, step)).square().mean().backward()
        optimizers[0].step()
        if rank == 0 or step < 2:
            optimizers[1].step()


def learning_rate_later(first: int, rank: int) -> None:
    """Seven steps; from the first one on the learning rate is the rank's own."""
    ddp = wrap(Two())
    train(rank, ddp, first)
    train(rank, ddp, 7 - first, sgd(ddp, 0.1 + rank), first=first)


def changed_later(first: int, rank: int) -> None:
    """Seven steps; from the first one on gradients are scaled by a number of the rank's own."""
    ddp = wrap(Two())

    def scale(step: int) -> None:
        for parameter in ddp.parameters():
            parameter.grad.mul_(1.0 + rank * (step >= first))

    train(rank, ddp, 7, before_step=scale)


def not_finite(rank: int) -> None:
    """Step 1's batch of rank 1 has an infinity in it."""

    def make(rank: int, step: int) -> torch.Tensor:
        return batch(rank, step) * (float("inf") if rank == 1 and step == 1 else 1)

    train(rank, wrap(Two()), 3, make=make)


def changed_on_the_last(rank: int) -> None:
    ddp = wrap(Two())

    def scale(step: int) -> None:
        ddp.module.first.bias.grad.mul_(2.0 if rank == 2 else 1.0)

    train(rank, ddp, 2, before_step=scale)


def unsent_on_the_middle(rank: int) -> None:
    torch.manual_seed(int(rank == 1))
    train(rank, wrap(Two(), init_sync=False), 2)


def registered_on_the_last(rank: int) -> None:
    train(rank, wrap(Ordered(int(rank == 2))), 2)


FAULTS = runs(
    changed_after,
    initial_state,
    learning_rate,
    parted_for_a_while,
    swapped,
    rounded,
    local_sgd,
    step_on_one,
    second_optimizer,
    not_finite,
)
#: Of three ranks.
OF_THREE = runs(
    changed_on_the_last,
    unsent_on_the_middle,
    registered_on_the_last,
)
