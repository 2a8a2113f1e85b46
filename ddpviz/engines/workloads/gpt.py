"""A small transformer that predicts the next token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ddpviz.engines.workloads import batches


class _Block(nn.Module):
    """Causal self-attention, then a two-layer network, each after a norm and added."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.network_norm = nn.LayerNorm(width)
        self.network = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        rows, length, width = states.shape
        mixed = self.attention(self.attention_norm(states))
        query, key, value = (
            part.view(rows, length, self.heads, -1).transpose(1, 2)
            for part in mixed.split(width, dim=2)
        )
        attended = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        attended = attended.transpose(1, 2).reshape(rows, length, width)
        states = states + self.projection(attended)
        return states + self.network(self.network_norm(states))


class _Transformer(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, vocabulary: int, context: int):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(_Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        states = self.tokens(tokens) + self.positions(places)
        return self.head(self.norm(self.blocks(states)))


def build(
    rank: int,
    world_size: int,
    device: torch.device,
    layers: int = 4,
    width: int = 256,
    heads: int = 4,
    vocabulary: int = 1024,
    context: int = 64,
    batch_size: int = 4,
) -> tuple[nn.Module, Callable[[int], Any], Callable[[Any, Any], torch.Tensor]]:
    """The transformer on random tokens; cross entropy of the next token.

    Raises ValueError where heads do not divide the width.
    """
    if width % heads:
        raise ValueError(f"found heads={heads}, expected a divisor of width={width}")
    model = _Transformer(layers, width, heads, vocabulary, context)
    batch = batches.tokens(rank, device, (batch_size, context), vocabulary)
    return (
        model,
        batch,
        lambda output, batch: nn.functional.cross_entropy(output.flatten(0, 1), batch[1].flatten()),
    )
