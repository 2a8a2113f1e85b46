"""Many small layers: 32 linear ones by default, so 64 parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ddpviz.engines.workloads import batches
from ddpviz.engines.workloads.layers import Layers


def build(
    rank: int,
    world_size: int,
    device: torch.device,
    layers: int = 32,
    width: int = 256,
    batch_size: int = 64,
) -> tuple[nn.Module, Callable[[int], Any], Callable[[Any, Any], torch.Tensor]]:
    """``layers`` linear layers of ``width`` with ReLU between them; cross entropy over them."""
    modules: list[nn.Module] = []
    for _ in range(layers):
        modules += [nn.Linear(width, width), nn.ReLU()]
    model = Layers(*modules[:-1])
    batch = batches.classification(rank, device, (batch_size, width), width)
    return model, batch, lambda output, batch: nn.functional.cross_entropy(output, batch[1])
