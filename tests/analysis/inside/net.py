"""The little network of the cases, and how it is wrapped and trained."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

RANKS = 3
#: In MiB: buckets of 2 KiB, so that the little network has several.
CAP = 0.002


class Net(nn.Module):
    """Normalized convolution and linear layers; ``side`` is left out where ``skip`` is set."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.side = nn.Linear(8, 8)
        self.hidden = nn.Linear(8, width)
        self.head = nn.Linear(width, 4)

    def forward(self, x: torch.Tensor, skip: bool = False) -> Any:
        x = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        if not skip:
            x = x + self.side(x)
        return {"out": [self.head(torch.relu(self.hidden(x)))]}


def wrapped(model: nn.Module | None = None, **arguments: Any) -> DDP:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return DDP(Net() if model is None else model, **arguments)


def backward(ddp: DDP, rank: int, number: int, skip: bool = False) -> None:
    torch.manual_seed(1000 * rank + number)  # other batches on each rank
    ddp(torch.randn(4, 3, 6, 6), skip=skip)["out"][0].square().mean().backward()


def train(ddp: DDP, rank: int, steps: int, **how: Any) -> None:
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    for step in range(steps):
        optimizer.zero_grad()
        backward(ddp, rank, step, **how)
        optimizer.step()
