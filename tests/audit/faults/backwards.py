"""Real runs whose backwards do not reduce all they should."""

from __future__ import annotations

import contextlib

from torch import nn

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


def static_in_no_sync(rank: int) -> None:
    """With static_graph the first iteration is in no_sync."""
    ddp = wrap(Two(), static_graph=True)
    with ddp.no_sync(), contextlib.suppress(RuntimeError):
        ddp(batch(rank)).square().mean().backward()


def unused_layer(rank: int) -> None:
    """Both leave the second layer out of step 1, and get an error in the forward after."""
    ddp = wrap(Two())
    train(rank, ddp, 1)
    optimizer = sgd(ddp)
    optimizer.zero_grad()
    ddp(batch(rank), skip=True).square().mean().backward()
    optimizer.step()
    with contextlib.suppress(RuntimeError):
        ddp(batch(rank))


def frozen_later(rank: int) -> None:
    ddp = wrap(Two())
    train(rank, ddp, 1)
    ddp.module.first.bias.requires_grad_(False)
    train(rank, ddp, 1)


def second_backward(rank: int) -> None:
    """Step 1 has two forwards and then two backwards."""
    ddp = wrap(Two())
    optimizer = sgd(ddp)
    train(rank, ddp, 1, optimizer)
    optimizer.zero_grad()
    losses = [ddp(batch(rank, step)).square().mean() for step in (1, 2)]
    for loss in losses:
        loss.backward()
    optimizer.step()
    train(rank, ddp, 1, optimizer)


def second_loss(rank: int) -> None:
    """Two backwards through one forward."""
    ddp = wrap(Two())
    optimizer = sgd(ddp)
    for step in range(2):
        optimizer.zero_grad()
        output = ddp(batch(rank, step))
        output.square().mean().backward(retain_graph=True)
        output.abs().mean().backward()
        optimizer.step()


def bypassed(rank: int) -> None:
    """From step 2 on the wrapped module is called itself."""
    ddp = wrap(Two())
    train(rank, ddp, 2)
    train(rank, ddp, 2, forward=ddp.module)


def no_sync_step(rank: int) -> None:
    """Step 1 is in no_sync as a whole, and the optimizer steps."""
    ddp = wrap(Two())
    optimizer = sgd(ddp)
    train(rank, ddp, 1, optimizer)
    with ddp.no_sync():
        train(rank, ddp, 1, optimizer)
    train(rank, ddp, 1, optimizer)


def autograd_grad(rank: int) -> None:
    """Gradients of torch.autograd.grad, which DDP does not see."""
    ddp = wrap(Two())
    optimizer = sgd(ddp)
    for step in range(3):
        gradients(rank, ddp, step)
        optimizer.step()


def ready_twice(rank: int) -> None:
    ddp = wrap(Twice(reentrant=True))
    with contextlib.suppress(RuntimeError):
        ddp(batch(rank)).square().mean().backward()


def twice_in_one(rank: int) -> None:
    """As above, of a model that is all in the checkpoints: the first of them completes the bucket,
    and what the second adds is never reduced. Nothing is raised."""
    model = Twice(reentrant=True)
    model.before = nn.Identity()  # type: ignore[assignment]
    ddp = wrap(model)
    train(rank, ddp, 1, make=lambda rank, step: batch(rank, step).requires_grad_())


def static_graph(rank: int) -> None:
    """The second layer takes no part in step 2."""
    ddp = wrap(Two(), static_graph=True)
    optimizer = sgd(ddp)
    train(rank, ddp, 2, optimizer)
    optimizer.zero_grad()
    with contextlib.suppress(RuntimeError):
        ddp(batch(rank), skip=True).square().mean().backward()


FAULTS = runs(
    static_in_no_sync,
    unused_layer,
    frozen_later,
    second_backward,
    second_loss,
    bypassed,
    no_sync_step,
    autograd_grad,
    ready_twice,
    twice_in_one,
    static_graph,
)
