"""Real runs with buffers that drift, are not sent, or are small."""

from __future__ import annotations

import torch

from tests.audit.nets import (
    Normed,
    Table,
    batch,
    train,
    wrap,
)
from tests.audit.recorded import runs


def evaluated_inside(rank: int) -> None:
    """Evaluation calls the wrapped module, without gradients, on rank 0 alone."""
    ddp = wrap(Normed())
    for step in range(3):
        train(rank, ddp, 1, first=step)
        if rank == 0:
            with torch.no_grad():
                ddp.module.eval()(batch(rank))
            ddp.module.train()


def drifting_buffers(rank: int) -> None:
    train(rank, wrap(Normed()), 4)


def no_buffer_sync(rank: int) -> None:
    train(rank, wrap(Normed(), broadcast_buffers=False), 4)


def small_table(rank: int) -> None:
    train(rank, wrap(Table(10)), 6)


def saved_everywhere(rank: int) -> None:
    """All ranks are asked for their state; rank 0's is saved."""
    ddp = wrap(Normed())
    train(rank, ddp, 2)
    ddp.module.state_dict()


def saved_after_evaluation(rank: int) -> None:
    """A forward without gradients made the buffers equal before rank 1 was asked."""
    ddp = wrap(Normed())
    train(rank, ddp, 2)
    with torch.no_grad():
        ddp(batch(rank))
    if rank == 1:
        ddp.state_dict()


HEALTHY = runs(
    evaluated_inside,
    drifting_buffers,
    no_buffer_sync,
    small_table,
    saved_everywhere,
    saved_after_evaluation,
)
