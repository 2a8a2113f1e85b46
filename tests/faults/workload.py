"""A small workload that goes wrong on one rank, in one step, in a given way."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

FAULT_STEP = 5
HANG_SECONDS = 600


def faulty(
    rank: int,
    world_size: int,
    device: torch.device,
    mode: str = "",
    where: int = 1,
    fault: str = "",
) -> tuple[nn.Module, Callable[[int], Any], Callable[[Any, Any], torch.Tensor]]:
    """``mode``: what happens on rank ``where`` when step 5 begins; empty for nothing.

    ``fault``: the file that gets the time of it.
    """

    def batch(step: int) -> torch.Tensor:
        if step == FAULT_STEP and mode == "gloo abort":
            if rank == where:
                mark(fault)
            # One rank brings more than the other takes: gloo throws on a thread of its own.
            dist.all_reduce(torch.ones(1_000_000 if rank == where else 10))
        if step == FAULT_STEP and (rank == where or mode == "everywhere"):
            if mode and fault:
                mark(fault)
            if mode in ("exception", "everywhere"):
                raise ValueError("no such sample")
            if mode == "abort":
                os.abort()
            if mode == "exit":
                os._exit(3)
            if mode == "hang":
                time.sleep(HANG_SECONDS)
        return torch.randn(8, 64)

    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    return model, batch, lambda output, batch: output.square().mean()


def mark(fault: str) -> None:
    """Write down when a fault happens, to measure from."""
    Path(fault).write_text(str(time.time_ns()))


def cannot_build(
    rank: int, world_size: int, device: torch.device, rank_that_fails: int | None = None
) -> Any:
    """Fails on one rank, while the other enters DDP's constructor; or on all."""
    if rank_that_fails in (None, rank):
        raise OSError("no such file")
    return faulty(rank, world_size, device)
