"""Run a function on real ranks (gloo, one process each) and collect what each returns.

Ranks are forked from a server that has imported torch and done nothing else: each is as new as a
process that was started, without the seconds that torch takes to import.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import tempfile
from collections.abc import Callable
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

import torch.multiprocessing as mp

multiprocessing.set_forkserver_preload(
    ["pytest", "torch._dynamo", "ddpviz.probe", "ddpviz.recording", "tests.fidelity.scenarios"]
)


def run_ranks(function: Callable[..., Any], world_size: int, *args: Any) -> list[Any]:
    """``function(rank, world_size, *args)`` on every rank, in a gloo group. Results by rank.

    Raises torch's ProcessRaisedException or ProcessExitedException where a rank goes wrong.
    """
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(
            _entry,
            (_Output(), function, world_size, folder, args),
            nprocs=world_size,
            start_method="forkserver",
        )
        return [
            pickle.loads((Path(folder) / f"{rank}.pickle").read_bytes())
            for rank in range(world_size)
        ]


class _Output:
    """Where this process prints at the moment: the server began elsewhere, ranks print there."""

    def __reduce__(self) -> tuple[Callable[..., None], tuple[Any, ...]]:
        return _print_to, (DupFd(1), DupFd(2))


def _print_to(*streams: Any) -> None:
    for number, stream in enumerate(streams, 1):
        os.dup2(stream.detach(), number)


def _entry(
    rank: int,
    output: None,
    function: Callable[..., Any],
    world_size: int,
    folder: str,
    args: tuple[Any, ...],
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
