"""ResNet-18 and ResNet-50 with the shapes of He et al. (arXiv 1512.03385), stride in the 3x3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ddpviz.engines.workloads import batches
from ddpviz.engines.workloads.layers import Layers

_BLOCKS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}


class _Block(nn.Module):
    """Two 3x3 convolutions (``expansion`` 1) or 1x1, 3x3, 1x1 (4), around a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int, expansion: int):
        super().__init__()
        outputs = width * expansion
        if expansion == 1:
            shapes = [(inputs, width, 3, stride), (width, outputs, 3, 1)]
        else:
            shapes = [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)]
        layers: list[nn.Module] = []
        for shape in shapes:
            layers += [_convolution(*shape), nn.BatchNorm2d(shape[1]), nn.ReLU(inplace=True)]
        self.body = nn.Sequential(*layers[:-1])
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                _convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs)
            )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return nn.functional.relu(self.body(images) + self.shortcut(images))


def _convolution(inputs: int, outputs: int, size: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


def resnet(depth: int, classes: int) -> Layers:
    """11,689,512 parameters at depth 18, 25,557,032 at 50 (1000 classes)."""
    if depth not in _BLOCKS:
        raise ValueError(f"found depth={depth}, expected one of {sorted(_BLOCKS)}")
    expansion = 1 if depth == 18 else 4
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, padding=1),
    ]
    inputs = 64
    for stage, blocks in enumerate(_BLOCKS[depth]):
        width = 64 * 2**stage
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 0 else 1
            layers.append(_Block(inputs, width, stride, expansion))
            inputs = width * expansion
    return Layers(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def build(
    rank: int,
    world_size: int,
    device: torch.device,
    depth: int = 18,
    image_size: int = 64,
    batch_size: int = 4,
    classes: int = 1000,
) -> tuple[nn.Module, Callable[[int], Any], Callable[[Any, Any], torch.Tensor]]:
    """The network of ``depth`` 18 or 50 on random images; cross entropy."""
    batch = batches.classification(rank, device, (batch_size, 3, image_size, image_size), classes)
    return (
        resnet(depth, classes),
        batch,
        lambda output, batch: nn.functional.cross_entropy(output, batch[1]),
    )
