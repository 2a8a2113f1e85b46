"""Small models, and steps of training them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint


class Two(nn.Module):
    """Two linear layers; ``second`` is left out where asked."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor, skip: bool = False) -> torch.Tensor:
        x = torch.relu(self.first(x))
        return x if skip else self.second(x)


def wrap(model: nn.Module, **arguments: Any) -> DDP:
    """In DDP, without the warning that an old argument's name gets."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return DDP(model, **arguments)


def batch(rank: int, step: int = 0, width: int = 8) -> torch.Tensor:
    """Another one for every rank and step."""
    generator = torch.Generator().manual_seed(100 * rank + step)
    return torch.randn(4, width, generator=generator)


def sgd(ddp: nn.Module, lr: float = 0.1) -> torch.optim.Optimizer:
    return torch.optim.SGD(ddp.parameters(), lr=lr)


def train(
    rank: int,
    ddp: nn.Module,
    steps: int = 3,
    optimizer: torch.optim.Optimizer | None = None,
    forward: Callable[[torch.Tensor], torch.Tensor] | None = None,
    first: int = 0,
    before_step: Callable[[int], None] = lambda step: None,
    make: Callable[[int, int], torch.Tensor] = batch,
) -> None:
    """Ordinary steps. ``before_step``: called between backward and the optimizer's step."""
    optimizer = sgd(ddp) if optimizer is None else optimizer
    for step in range(first, first + steps):
        optimizer.zero_grad()
        output = (ddp if forward is None else forward)(make(rank, step))
        output.square().mean().backward()
        before_step(step)
        optimizer.step()


def local_state(start: int) -> PostLocalSGDState:
    groups = [dist.new_group([one]) for one in range(dist.get_world_size())]
    return PostLocalSGDState(None, groups[dist.get_rank()], start_localSGD_iter=start)


def gradients(rank: int, ddp: nn.Module, step: int) -> None:
    """Each parameter's, by autograd.grad."""
    parameters = list(ddp.parameters())
    found = torch.autograd.grad(ddp(batch(rank, step)).square().mean(), parameters)
    for parameter, gradient in zip(parameters, found, strict=True):
        parameter.grad = gradient


class Ordered(nn.Module):
    """Two layers of one shape, registered in an order that depends on the rank."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        for name in ("first", "second") if rank == 0 else ("second", "first"):
            setattr(self, name, nn.Linear(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


class Twice(nn.Module):
    """A layer whose activations are checkpointed in two places."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.layer, self.reentrant = nn.Linear(8, 8), reentrant
        self.before = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x)
        for _ in range(2):
            x = checkpoint(self.layer, x, use_reentrant=self.reentrant)
        return x


def image(rank: int, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * rank + step)
    return torch.randn(1, 64, 4, 4, generator=generator)


class Queue(nn.Module):
    """A buffer that every rank fills with its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("queue", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.queue.copy_(x.detach().mean(0))
        return self.layer(x)


class Table(nn.Module):
    """A large constant among the buffers."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("table", torch.ones(rows, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x + self.table[0])


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.layer(x))
