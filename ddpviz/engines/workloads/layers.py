"""Layers one after another, which ``torch.compile`` compiles."""

from __future__ import annotations

import torch
from torch import nn


class Layers(nn.Sequential):
    """As ``nn.Sequential``, with a forward that is not written in torch.

    Dynamo passes over frames of torch's own files, ``nn.Sequential.forward`` among them: compiled
    with a DDP module around it (wrap, then compile), nothing of it would be (torch 2.13).
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        for layer in self:
            input = layer(input)
        return input
