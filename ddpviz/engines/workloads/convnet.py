"""Convolutions with BatchNorm: several buckets at ``bucket_cap_mb=1``, and buffers to sync."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ddpviz.engines.workloads import batches
from ddpviz.engines.workloads.layers import Layers

#: 3.9 MB of weights. In ready order (last layer first) a 1 MiB limit closes buckets of about
#: 2.4, 1.2 and 0.4 MB.
_CHANNELS = (3, 32, 64, 128, 256, 256)


def build(
    rank: int,
    world_size: int,
    device: torch.device,
    image_size: int = 32,
    batch_size: int = 16,
    classes: int = 10,
) -> tuple[nn.Module, Callable[[int], Any], Callable[[Any, Any], torch.Tensor]]:
    """Five 3x3 convolutions, each with BatchNorm and ReLU; then a linear layer."""
    modules: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(itertools.pairwise(_CHANNELS)):
        stride = 1 if i == 0 else 2
        modules += [
            nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        ]
    modules += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(_CHANNELS[-1], classes)]
    shape = (batch_size, _CHANNELS[0], image_size, image_size)
    batch = batches.classification(rank, device, shape, classes)
    return (
        Layers(*modules),
        batch,
        lambda output, batch: nn.functional.cross_entropy(output, batch[1]),
    )
