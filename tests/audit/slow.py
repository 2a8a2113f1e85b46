"""Real runs that lose time in one way or another, and near misses. Widths are such that the margin
is many times what a busy machine adds."""

from __future__ import annotations

import threading
import time

import torch
import torch.distributed as dist
from torch import nn

from tests.audit.nets import batch, train, wrap
from tests.audit.recorded import Runs

STEPS = 16


class Chain(nn.Module):
    """Linear layers, registered in the order of use or against it."""

    def __init__(self, width: int, layers: int, backwards: bool = False) -> None:
        super().__init__()
        made = [nn.Linear(width, width) for _ in range(layers)]
        self.layers = nn.ModuleList(reversed(made) if backwards else made)
        self.backwards = backwards

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in reversed(self.layers) if self.backwards else self.layers:
            x = torch.relu(layer(x))
        return x


class Pause(torch.autograd.Function):
    """Takes its time in backward."""

    @staticmethod
    def forward(ctx, x, seconds):  # type: ignore[no-untyped-def]
        ctx.seconds = seconds
        return x.clone()

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        time.sleep(ctx.seconds)
        return grad, None


class Paused(nn.Module):
    """Two layers; backward pauses between them."""

    def __init__(self, seconds: float, against: bool = False) -> None:
        super().__init__()
        names = ("second", "first") if against else ("first", "second")
        for name in names:
            setattr(self, name, nn.Linear(64, 64))
        self.seconds = seconds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(Pause.apply(torch.relu(self.first(x)), self.seconds))


def narrow(rank: int, step: int) -> torch.Tensor:
    return batch(rank, step, 64)


def head_of_line(rank: int) -> None:
    """Registered against the order of use, and never rebuilt: ready first, sent last."""
    ddp = wrap(Paused(0.03, against=True), find_unused_parameters=True, bucket_cap_mb=0.01)
    train(rank, ddp, STEPS, make=narrow)


def late_rank(rank: int) -> None:
    """Rank 1 takes 40 ms longer before each forward."""
    ddp = wrap(Paused(0.0), bucket_cap_mb=0.01)

    def forward(x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.04 * rank)
        found: torch.Tensor = ddp(x)
        return found

    train(rank, ddp, STEPS, forward=forward, make=narrow)


def late_in_backward(rank: int) -> None:
    """Rank 0 takes 40 ms longer in the middle of each backward: the second bucket is late."""
    ddp = wrap(Paused(0.04 * (1 - rank)), bucket_cap_mb=0.01)
    train(rank, ddp, STEPS, make=narrow)


def alternating(rank: int) -> None:
    """Now one rank is late, now the other."""
    ddp = wrap(Paused(0.0), bucket_cap_mb=0.01)
    for step in range(STEPS):
        time.sleep(0.02 * ((rank + step) % 2))
        train(rank, ddp, 1, make=narrow, first=step)


def slow_network(state, bucket):  # type: ignore[no-untyped-def] # DDP refuses string annotations
    """An all-reduce whose result comes 60 ms late."""
    dist.all_reduce(bucket.buffer().div_(dist.get_world_size()))
    future = torch.futures.Future()
    threading.Timer(0.06, lambda: future.set_result(bucket.buffer())).start()
    return future


def exposed(rank: int) -> None:
    ddp = wrap(Chain(512, 2))
    ddp.register_comm_hook(None, slow_network)
    train(rank, ddp, STEPS, make=lambda rank, step: batch(rank, step, 512))


def late_and_exposed(rank: int) -> None:
    """Rank 1 is late, and the network slow besides."""
    ddp = wrap(Chain(512, 2))
    ddp.register_comm_hook(None, slow_network)

    def forward(x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.06 * rank)
        found: torch.Tensor = ddp(x)
        return found

    train(rank, ddp, STEPS, forward=forward, make=lambda rank, step: batch(rank, step, 512))


def small(rank: int) -> None:
    """A small model spends most of its step on communication, and that is no finding."""
    train(
        rank, wrap(Chain(16, 6), bucket_cap_mb=0.001), 2 * STEPS, make=lambda r, s: batch(r, s, 16)
    )


SLOW: Runs = {
    one.__name__: one
    for one in (head_of_line, late_rank, late_in_backward, alternating, exposed, small)
}
