"""Reproducible random batches for the built-in workloads, other ones on each rank and step."""

from __future__ import annotations

from collections.abc import Callable

import torch

Batch = tuple[torch.Tensor, torch.Tensor]


def classification(
    rank: int, device: torch.device, shape: tuple[int, ...], classes: int
) -> Callable[[int], Batch]:
    """A function from a step to (inputs of ``shape``, class labels)."""
    seed = torch.initial_seed()

    def batch(step: int) -> Batch:
        generator = _generator(seed, rank, step)
        inputs = torch.randn(shape, generator=generator)
        labels = torch.randint(classes, shape[:1], generator=generator)
        return inputs.to(device), labels.to(device)

    return batch


def tokens(
    rank: int, device: torch.device, shape: tuple[int, int], vocabulary: int
) -> Callable[[int], Batch]:
    """A function from a step to (tokens, the same tokens one later), both of ``shape``."""
    seed = torch.initial_seed()
    rows, columns = shape

    def batch(step: int) -> Batch:
        generator = _generator(seed, rank, step)
        text = torch.randint(vocabulary, (rows, columns + 1), generator=generator)
        return text[:, :-1].to(device), text[:, 1:].to(device)

    return batch


def _generator(seed: int, rank: int, step: int) -> torch.Generator:
    # Drawn on the CPU whatever the device: the same numbers on every machine.
    mixed = ((seed * 1_000_003 + rank) * 1_000_003 + step) % 2**63
    return torch.Generator().manual_seed(mixed)
