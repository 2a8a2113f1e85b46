"""Real runs whose module is not what DDP wrapped, on all ranks or on some."""

from __future__ import annotations

import contextlib

from torch import nn

from tests.audit.nets import (
    Ordered,
    Two,
    train,
    wrap,
)
from tests.audit.recorded import runs


def replaced(rank: int) -> None:
    """After step 0 a weight is another Parameter."""
    ddp = wrap(Two())
    train(rank, ddp, 1)
    ddp.module.second.weight = nn.Parameter(ddp.module.second.weight.detach().clone())
    # The Reducer waits for the old one, so it has to be in the graph.
    keep = next(p for n, p in zip(range(9), ddp._module_parameters, strict=False) if n == 2)
    train(rank, ddp, 2, forward=lambda x: ddp(x) + 0 * keep.sum())


def replaced_and_waited_for(rank: int) -> None:
    """As above, and nothing keeps the old one in the graph: step 1 reduces nothing."""
    ddp = wrap(Two())
    train(rank, ddp, 1)
    ddp.module.second.weight = nn.Parameter(ddp.module.second.weight.detach().clone())
    with contextlib.suppress(RuntimeError):
        train(rank, ddp, 2, first=1)


def replaced_by_two(rank: int) -> None:
    """After step 0 a layer becomes two."""
    ddp = wrap(Two())
    train(rank, ddp, 1)
    ddp.module.second = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    with contextlib.suppress(RuntimeError):
        train(rank, ddp, 2, first=1)


def unhooked(rank: int) -> None:
    """A frozen bias is made trainable after wrapping."""
    model = Two()
    model.second.bias.requires_grad_(False)
    ddp = wrap(model)
    model.second.bias.requires_grad_(True)
    train(rank, ddp, 2)


def registration_order(rank: int) -> None:
    train(rank, wrap(Ordered(rank)), 2)


def frozen_on_one(rank: int) -> None:
    """DDP counts parameters, and raises on every rank."""
    model = Two()
    model.second.bias.requires_grad_(rank == 0)
    with contextlib.suppress(RuntimeError):
        wrap(model)


def other_configuration(rank: int) -> None:
    train(rank, wrap(Two(), gradient_as_bucket_view=rank == 1), 2)


FAULTS = runs(
    replaced,
    replaced_and_waited_for,
    replaced_by_two,
    unhooked,
    registration_order,
    frozen_on_one,
    other_configuration,
)
