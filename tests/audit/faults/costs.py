"""Real runs that pay for nothing, and buffers that differ or never change."""

from __future__ import annotations

import torch
from torch import nn

from tests.audit.nets import (
    Normed,
    Queue,
    Table,
    Two,
    image,
    train,
    wrap,
)
from tests.audit.recorded import runs


def unused_search(rank: int) -> None:
    train(rank, wrap(Two(), find_unused_parameters=True), 12)


def layout(rank: int) -> None:
    """The memory format is changed after DDP has built its buckets for the last time."""
    ddp = wrap(nn.Conv2d(64, 128, 3))
    train(rank, ddp, 2, make=image)
    ddp.module.to(memory_format=torch.channels_last)
    train(rank, ddp, 2, make=image, first=2)


def own_buffers(rank: int) -> None:
    train(rank, wrap(Queue()), 3)


def constant_buffers(rank: int) -> None:
    train(rank, wrap(Table(40_000)), 6)


def stale(rank: int) -> None:
    """Rank 1 alone is asked for its state after step 1."""
    ddp = wrap(Normed())
    train(rank, ddp, 2)
    if rank == 1:
        ddp.module.state_dict()


FAULTS = runs(
    unused_search,
    layout,
    own_buffers,
    constant_buffers,
    stale,
)
