"""What ranks do between steps, or in place of them: run there, with the rank's own ``session``."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.algorithms.join import Join
from torch.nn.parallel.distributed import _BufferCommHookLocation


def inputs(session: Any, number: int) -> torch.Tensor:
    """Images for convnet, other ones on each rank."""
    generator = torch.Generator().manual_seed(1_000 * session.rank + number)
    return torch.randn((4, 3, 8, 8), generator=generator).to(session.device)


def step(session: Any, number: int) -> None:
    """A training step by hand."""
    session.optimizer.zero_grad()
    session.ddp(inputs(session, number)).square().mean().backward()
    session.optimizer.step()


def evaluate(session: Any, forwards: int) -> None:
    """Forwards without gradients, in eval mode."""
    session.ddp.eval()
    with torch.no_grad():
        for number in range(forwards):
            session.ddp(inputs(session, number))
    session.ddp.train()


def train_until_joined(session: Any) -> None:
    """Under Join: rank 0 has data for one step, each next rank for one more."""
    with Join([session.ddp]):
        for number in range(1 + session.rank):
            step(session, number)


def average_buffers_after_the_forward(session: Any) -> None:
    """Have buffers averaged after each forward, by a hook, instead of broadcast before it."""
    session.ddp._register_buffer_comm_hook(None, _averaged, _BufferCommHookLocation.POST_FORWARD)


def _averaged(state: object, buffers: dict[str, torch.Tensor]) -> list[Any]:
    # Divided before: what is written after the hook returned would upset autograd's versions.
    futures = []
    for buffer in buffers.values():
        if buffer.is_floating_point():
            buffer.div_(torch.distributed.get_world_size())
            work = torch.distributed.all_reduce(buffer, async_op=True)
            futures.append(work.get_future())
    return futures


def two_forwards_then_two_backwards(session: Any) -> None:
    """Both losses are computed before the first backward."""
    session.optimizer.zero_grad()
    with session.step():
        losses = [session.ddp(inputs(session, number)).square().mean() for number in (0, 1)]
        for loss in losses:
            loss.backward()
        session.optimizer.step()
