"""Run a function on real ranks (gloo, one process each) and collect what each returns."""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.multiprocessing as mp


def run_ranks(function: Callable[..., Any], world_size: int, *args: Any) -> list[Any]:
    """``function(rank, world_size, *args)`` on every rank, in a gloo group. Results by rank."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_entry, (function, world_size, folder, args), nprocs=world_size)
        return [
            pickle.loads((Path(folder) / f"{rank}.pickle").read_bytes())
            for rank in range(world_size)
        ]


def _entry(
    rank: int, function: Callable[..., Any], world_size: int, folder: str, args: tuple[Any, ...]
) -> None:
    os.environ["TORCH_FR_BUFFER_SIZE"] = "20000"  # the flight recorder is the second witness
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world_size
    )
    result = function(rank, world_size, *args)
    (Path(folder) / f"{rank}.pickle").write_bytes(pickle.dumps(result))
    dist.barrier()
    dist.destroy_process_group()
