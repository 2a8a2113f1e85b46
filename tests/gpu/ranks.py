"""Run a function on ranks of a GPU backend, one process each."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.multiprocessing as mp


def run_gpu_ranks(function: Callable[..., Any], world_size: int, backend: str, *args: Any) -> Any:
    """``function(rank, device, *args)`` on every rank; NCCL has a GPU for each, gloo shares them.

    Results by rank. Raises torch's own errors where a rank goes wrong.
    """
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_entry, (function, world_size, backend, folder, args), nprocs=world_size)
        return [
            pickle.loads((Path(folder) / f"{rank}.pickle").read_bytes())
            for rank in range(world_size)
        ]


def _entry(
    rank: int,
    function: Callable[..., Any],
    world_size: int,
    backend: str,
    folder: str,
    args: tuple[Any, ...],
) -> None:
    import torch
    import torch.distributed as dist

    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    dist.init_process_group(
        backend,
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=world_size,
        device_id=device if backend == "nccl" else None,
    )
    result = function(rank, device, *args)
    (Path(folder) / f"{rank}.pickle").write_bytes(pickle.dumps(result))
    dist.barrier()
    dist.destroy_process_group()


def worlds() -> list[tuple[str, int]]:
    """NCCL alone and on every GPU there is; gloo with two ranks on one."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return [("nccl", 1), ("gloo", 2), *([("nccl", count)] if count > 1 else [])]
