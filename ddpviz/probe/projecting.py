"""Products of a bucket with a few fixed vectors: what is linear in it, to compare with a mean.

The vectors are random numbers that repeat after a prime, so a bucket is read once to fold it, and
the rest is small.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from ddpviz.events import Plan
from ddpviz.probe.layout import memory_order

#: Products per bucket.
MANY = 8
_PERIOD = 1021


def project(flat: torch.Tensor) -> list[float]:
    """``MANY`` numbers. ``flat``: one-dimensional, of any floating type."""
    flat = flat.detach()
    whole = flat.numel() // _PERIOD * _PERIOD
    folded = flat[:whole].view(-1, _PERIOD).sum(0, dtype=torch.float32).double()
    rest = flat[whole:].double()
    folded[: len(rest)] += rest
    found: list[float] = (_vectors() @ folded.cpu()).tolist()
    return found


def project_gradients(plan: Plan, parameters: list[Any]) -> list[list[float]] | None:
    """Of the gradients, bucket by bucket, as they lie in it; None where one is missing or sparse.

    ``parameters``: weak references, in the Reducer's order.
    """
    found = []
    for bucket in plan.buckets:
        parts = []
        for index in bucket.parameters:
            parameter = parameters[index]() if 0 <= index < len(parameters) else None
            grad = None if parameter is None else parameter.grad
            if parameter is None or grad is None or grad.layout is not torch.strided:
                return None
            parts.append(_as_in_bucket(grad.detach(), parameter))
        found.append(project(torch.cat(parts)))
    return found


def _as_in_bucket(grad: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """A bucket has a dense parameter's elements in the order in which that one has them in memory,
    any other's in logical order (``Reducer::initialize_bucket_views``, torch 2.6 to 2.13)."""
    order = memory_order(parameter)
    return grad.reshape(-1) if order is None else grad.permute(order).reshape(-1)


@functools.cache
def _vectors() -> torch.Tensor:
    """The same on every rank, on the host."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(MANY, _PERIOD, generator=generator, dtype=torch.float64)
