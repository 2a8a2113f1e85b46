"""Small models, and steps of training them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


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
