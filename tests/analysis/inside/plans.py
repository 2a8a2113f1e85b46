"""Bucket plans, and parameters that are unused, sparse, ignored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from tests.analysis.inside.net import CAP, RANKS, Net, backward, train, wrapped


def unused_here(rank: int) -> None:
    """Ranks 0 and 1 leave ``side`` out, in their second step all ranks do, in the third none."""
    ddp = wrapped(find_unused_parameters=True, bucket_cap_mb=CAP)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    for number in range(4):
        optimizer.zero_grad()
        if number == 3:
            with ddp.no_sync():
                backward(ddp, rank, number)
        backward(ddp, rank, number, skip=(rank < 2, True, False, True)[number])
        optimizer.step()


class Backwards(nn.Module):
    """Layers that are registered in the opposite of the order in which they run."""

    def __init__(self) -> None:
        super().__init__()
        for number in (3, 2, 1, 0):
            self.add_module(f"layer{number}", nn.Linear(64, 64))

    def forward(self, x: torch.Tensor, **_: Any) -> Any:
        x = x.flatten(1)[:, :64]
        for number in range(4):
            x = torch.relu(getattr(self, f"layer{number}")(x))
        return {"out": [x]}


def wrong_order(rank: int) -> None:
    """With ``find_unused_parameters`` buckets are not rebuilt: each waits for the one before it."""
    train(wrapped(Backwards(), find_unused_parameters=True, bucket_cap_mb=0.01), rank, 2)


def unused_in_static(rank: int) -> None:
    train(wrapped(static_graph=True, bucket_cap_mb=CAP), rank, 4, skip=True)


def plain(**arguments: Any) -> Callable[[int], None]:
    return lambda rank: train(wrapped(**arguments), rank, 4)


class Sparse(nn.Module):
    """A table with sparse gradients, a frozen layer, and one to train."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 8, sparse=True)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, **_: Any) -> Any:
        words = (x.flatten(1)[:, :3].abs() * 10).long() % 20
        return {"out": [self.head(self.frozen(self.table(words).mean(1)))]}


def sparse(rank: int) -> None:
    train(wrapped(Sparse()), rank, 3)


class TwoDtypes(nn.Module):
    """1 MiB and more in float32, and as much in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow = nn.ModuleList(nn.Linear(420, 420) for _ in range(3))
        self.wide = nn.ModuleList(nn.Linear(300, 300, dtype=torch.float64) for _ in range(3))
        self.into = nn.Linear(420, 300)

    def forward(self, x: torch.Tensor, **_: Any) -> Any:
        x = x.flatten(1).repeat(1, 4)[:, :420]
        for layer in self.narrow:
            x = layer(x)
        x = self.into(x).double()
        for layer in self.wide:
            x = layer(x)
        return {"out": [x]}


def two_dtypes(rank: int) -> None:
    train(wrapped(TwoDtypes()), rank, 3)


def by_default(rank: int) -> None:
    """Two MiB in two tensors, so that the small first bucket can be seen."""
    train(wrapped(Net(width=60_000)), rank, 3)


def unsearched(rank: int) -> None:
    train(wrapped(Net(width=60_000), find_unused_parameters=True), rank, 2)


def convnet(rank: int) -> None:
    from ddpviz.engines.workloads.convnet import build

    torch.manual_seed(0)
    model, batch, loss = build(rank, RANKS, torch.device("cpu"))
    ddp = DDP(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    for number in range(3):
        optimizer.zero_grad()
        given = batch(number)
        loss(ddp(given[0]), given).backward()
        optimizer.step()


def ignored(rank: int) -> None:
    """DDP is told to leave one parameter and one buffer alone."""
    model = Net()
    names = ["side.bias", "norm.running_mean"]
    DDP._set_params_and_buffers_to_ignore_for_model(model, names)
    train(wrapped(model, bucket_cap_mb=CAP), rank, 2)
