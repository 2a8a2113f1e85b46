"""Real compiled runs of two ranks whose graph, or its borders, keep gradients from being sent."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from tests.audit.nets import batch, train, wrap
from tests.audit.recorded import Runs
from tests.audit.slow import Chain

_WIDTH = 512


def _compiled(rank: int, mode: str, layers: int, cap_mb: float, first_bytes: int) -> None:
    from torch import _dynamo as dynamo

    dynamo.reset()
    dynamo.config.optimize_ddp = mode
    before = dist._DEFAULT_FIRST_BUCKET_BYTES
    dist._DEFAULT_FIRST_BUCKET_BYTES = first_bytes
    try:
        ddp = wrap(Chain(_WIDTH, layers), bucket_cap_mb=cap_mb)
        model: Any = torch.compile(ddp, backend="aot_eager")
        train(rank, ddp, 6, forward=model, make=lambda rank, step: batch(rank, step, _WIDTH))
    finally:
        dist._DEFAULT_FIRST_BUCKET_BYTES = before


def one_graph(rank: int) -> None:
    """Five buckets, the largest of 1 MiB, and a backward that is one node."""
    _compiled(rank, "no_optimization", 4, 1.0, 1 << 20)


def other_borders(rank: int) -> None:
    """DDPOptimizer's first limit is its own, so its graphs end elsewhere than buckets of 2 MiB."""
    _compiled(rank, "ddp_optimizer", 6, 2.5, 1 << 20)


def same_borders(rank: int) -> None:
    """A graph for each bucket."""
    _compiled(rank, "ddp_optimizer", 4, 1.0, 1 << 20)


COMPILED: Runs = {one.__name__: one for one in (one_graph, other_borders, same_borders)}
