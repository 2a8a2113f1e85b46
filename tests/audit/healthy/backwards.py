"""Real runs whose backwards are unusual, and right."""

from __future__ import annotations

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join

from tests.audit.nets import (
    Twice,
    Two,
    batch,
    gradients,
    sgd,
    train,
    wrap,
)
from tests.audit.recorded import runs


def unused_and_said_so(rank: int) -> None:
    """The second layer is left out now and then, with find_unused_parameters."""
    ddp = wrap(Two(), find_unused_parameters=True)
    for step in range(12):
        train(rank, ddp, 1, forward=lambda x, skip=step % 3 == 1: ddp(x, skip=skip), first=step)


def accumulation(rank: int) -> None:
    """Two micro-batches in no_sync, the third reduces all."""
    ddp = wrap(Two())
    optimizer = sgd(ddp)
    for step in range(2):
        optimizer.zero_grad()
        with ddp.no_sync():
            for micro in range(2):
                ddp(batch(rank, 10 * step + micro)).square().mean().backward()
        ddp(batch(rank, 10 * step + 2)).square().mean().backward()
        optimizer.step()


def reduced_by_hand(rank: int) -> None:
    """All in no_sync, and one collective of the program's own."""
    ddp = wrap(Two())
    optimizer = sgd(ddp)

    def average(step: int) -> None:
        flat = torch.cat([parameter.grad.reshape(-1) for parameter in ddp.parameters()])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        parts = flat.split([parameter.numel() for parameter in ddp.parameters()])
        for parameter, part in zip(ddp.parameters(), parts, strict=True):
            parameter.grad.copy_(part.view_as(parameter))

    with ddp.no_sync():
        train(rank, ddp, 3, optimizer, before_step=average)


def grad_by_hand(rank: int) -> None:
    """autograd.grad, and an all-reduce of each gradient."""
    ddp = wrap(Two())
    optimizer = sgd(ddp)
    for step in range(3):
        gradients(rank, ddp, step)
        for parameter in ddp.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        optimizer.step()


def frozen_critic(rank: int) -> None:
    """The critic is frozen while the generator learns through it: it needs no gradient then."""
    generator, critic = wrap(Two()), wrap(Two())
    of_generator, of_critic = sgd(generator), sgd(critic)
    for step in range(3):
        critic.requires_grad_(True)
        of_critic.zero_grad()
        critic(batch(rank, step)).square().mean().backward()
        of_critic.step()
        critic.requires_grad_(False)
        of_generator.zero_grad()
        critic(generator(batch(rank, step))).square().mean().backward()
        of_generator.step()


def adversarial(rank: int) -> None:
    """A batch is changed by its own gradient, through DDP, before each ordinary step."""
    ddp = wrap(Two())
    optimizer = sgd(ddp)
    for step in range(3):
        x = batch(rank, step).requires_grad_()
        (slope,) = torch.autograd.grad(ddp(x).square().mean(), x)
        optimizer.zero_grad()
        ddp(x.detach() + 0.01 * slope.sign()).square().mean().backward()
        optimizer.step()


def probed(rank: int) -> None:
    """Rank 0 alone trains a layer of its own beside each step."""
    ddp = wrap(Two())
    layer = nn.Linear(8, 2)
    own = sgd(layer)
    for step in range(4):
        train(rank, ddp, 1, first=step)
        if rank == 0:
            own.zero_grad()
            layer(ddp.module(batch(rank)).detach()).square().mean().backward()
            own.step()


def skipped_together(rank: int) -> None:
    """The optimizer steps in every second step, on both ranks."""
    ddp = wrap(Two())
    optimizer = sgd(ddp)
    for step in range(5):
        optimizer.zero_grad()
        ddp(batch(rank, step)).square().mean().backward()
        if step % 2:
            optimizer.step()


def looked_into(rank: int) -> None:
    """After training rank 0 alone runs a forward, with gradients and no backward."""
    ddp = wrap(Two())
    train(rank, ddp)
    if rank == 0:
        ddp(batch(rank))


def two_losses(rank: int) -> None:
    """Added, and one backward."""
    ddp = wrap(Two())
    optimizer = sgd(ddp)
    for step in range(2):
        optimizer.zero_grad()
        output = ddp(batch(rank, step))
        (output.square().mean() + output.abs().mean()).backward()
        optimizer.step()


def two_halves(rank: int) -> None:
    """Two backwards of one forward, each through its own parameters: the second completes it."""

    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.left(x), self.right(x)

    ddp = wrap(Halves())
    optimizer = sgd(ddp)
    for step in range(3):
        optimizer.zero_grad()
        for output in ddp(batch(rank, step)):
            output.square().mean().backward()
        optimizer.step()


def adversaries(rank: int) -> None:
    """A critic gets gradients, not through DDP, when the generator learns; they are thrown away."""
    generator, critic = wrap(Two()), wrap(Two())
    of_generator, of_critic = sgd(generator), sgd(critic)
    for step in range(3):
        of_critic.zero_grad()
        critic(batch(rank, step)).square().mean().backward()
        of_critic.step()
        of_generator.zero_grad()
        critic.module(generator(batch(rank, step))).square().mean().backward()
        of_generator.step()


def clipped(rank: int) -> None:
    """By the norm of the averages, which is the same everywhere."""
    ddp = wrap(Two())

    def clip(step: int) -> None:
        torch.nn.utils.clip_grad_norm_(ddp.parameters(), 0.01)

    train(rank, ddp, before_step=clip)


def summed_metric(rank: int) -> None:
    """An all-reduce of the user's own in every step."""
    train(rank, wrap(Two()), before_step=lambda step: dist.all_reduce(torch.ones(1)))


def checkpointed(rank: int) -> None:
    train(rank, wrap(Twice(reentrant=False)))


def static_graph(rank: int) -> None:
    train(rank, wrap(Two(), static_graph=True), 4)


def searched_briefly(rank: int) -> None:
    train(rank, wrap(Two(), find_unused_parameters=True), 4)


def uneven(rank: int) -> None:
    """Rank 1 has two steps more, in Join."""
    ddp = wrap(Two())
    with Join([ddp]):
        train(rank, ddp, 3 + 2 * rank)


def scaled_loss(rank: int) -> None:
    """An infinite gradient is skipped, as a gradient scaler does."""
    ddp = wrap(Two())
    optimizer = sgd(ddp)
    for step in range(3):
        optimizer.zero_grad()
        scale = float("inf") if step == 1 else 1.0
        (ddp(batch(rank, step)).square().mean() * scale).backward()
        if all(torch.isfinite(parameter.grad).all() for parameter in ddp.parameters()):
            optimizer.step()


def caught(rank: int) -> None:
    """Rank 1's forward of step 1 fails, which it catches, and runs it anew."""
    ddp = wrap(Two())
    train(rank, ddp, 1)
    if rank == 1:
        with contextlib.suppress(RuntimeError):
            ddp(torch.zeros(4, 5))
    train(rank, ddp, 2, first=1)


def of_a_few(rank: int) -> None:
    """Rank 0 alone sums in a process group of its own, between backward and the step."""
    alone = [dist.new_group([one]) for one in range(dist.get_world_size())]

    def own(step: int) -> None:
        if rank == 0:
            dist.all_reduce(torch.ones(3), group=alone[0])

    train(rank, wrap(Two()), before_step=own)


HEALTHY = runs(
    caught,
    of_a_few,
    unused_and_said_so,
    accumulation,
    reduced_by_hand,
    grad_by_hand,
    frozen_critic,
    adversarial,
    probed,
    skipped_together,
    looked_into,
    two_losses,
    two_halves,
    adversaries,
    clipped,
    summed_metric,
    checkpointed,
    static_graph,
    searched_briefly,
    uneven,
    scaled_loss,
)
