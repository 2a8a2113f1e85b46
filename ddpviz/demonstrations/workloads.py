"""Workloads that show one thing each; built on the ranks, as ``Session.load`` takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

_Workload = tuple[nn.Module, Callable[[int], Any], Callable[[Any, Any], torch.Tensor]]


class Chain(nn.Module):
    """Linear layers one after the other. ``backwards``: registered against the order of use.
    ``skip``: the layer that the forward leaves out."""

    def __init__(self, width: int, layers: int, backwards: bool, skip: int | None) -> None:
        super().__init__()
        made = [nn.Linear(width, width) for _ in range(layers)]
        self.layers = nn.ModuleList(reversed(made) if backwards else made)
        self.backwards, self.skip = backwards, skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        in_use = reversed(self.layers) if self.backwards else self.layers
        for position, layer in enumerate(in_use):
            if position != self.skip:
                x = torch.relu(layer(x))
        return x


def chain(
    rank: int,
    world_size: int,
    device: torch.device,
    width: int = 512,
    layers: int = 6,
    backwards: bool = False,
    skip: int | None = None,
    batch_size: int = 8,
) -> _Workload:
    """:class:`Chain`; a layer of 512 has 1 MiB of weights."""
    model = Chain(width, layers, backwards, skip)
    return model, _inputs(rank, device, batch_size, width), _square


class Replacing(nn.Module):
    """Puts a new tensor in the place of its buffer in each forward."""

    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = self.seen + x.detach().mean()
        return self.layer(x)


def replacing(rank: int, world_size: int, device: torch.device) -> _Workload:
    """:class:`Replacing`."""
    return Replacing(), _inputs(rank, device, 8, 8), _square


class Matrix(nn.Module):
    """One square matrix, no bias: a single parameter in a single bucket."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def matrix(rank: int, world_size: int, device: torch.device, width: int = 256) -> _Workload:
    """:class:`Matrix`."""
    return Matrix(width), _inputs(rank, device, 8, width), _square


def _inputs(
    rank: int, device: torch.device, batch_size: int, width: int
) -> Callable[[int], torch.Tensor]:
    def batch(step: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1_000_003 * rank + step)
        return torch.randn((batch_size, width), generator=generator).to(device)

    return batch


def _square(output: torch.Tensor, batch: Any) -> torch.Tensor:
    return output.square().mean()
