"""Two gloo ranks train a built-in workload in blocks that alternate between variants.

The order of a repetition's blocks is shuffled, the same on both ranks, so that the drift of a
shared machine hits all variants alike; each is told as a ratio to the bare block of its repetition.
"""

from __future__ import annotations

import importlib
import random
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from ddpviz.engines.workloads import WORKLOADS

#: One block: (workload, variant, step, DDP module, folder of its own) to what was measured.
Block = Callable[[str, str, Callable[[], None], Any, Path], dict[str, float]]
#: What rank 0 prints: (workload, DDP module, by variant a measurement per repetition).
Tell = Callable[[str, Any, dict[str, list[dict[str, float]]]], None]


def measure(
    workloads: Sequence[str], variants: Sequence[str], repetitions: int, block: Block, tell: Tell
) -> None:
    """``block``, ``tell``: functions of a module, as they run in processes of their own."""
    for workload in workloads:
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(_run, (workload, tuple(variants), repetitions, folder, block, tell), nprocs=2)


def _run(
    rank: int,
    workload: str,
    variants: tuple[str, ...],
    repetitions: int,
    folder: str,
    block: Block,
    tell: Tell,
) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2
    )
    build = importlib.import_module(WORKLOADS[workload]).build
    torch.manual_seed(0)
    model, batch, loss = build(rank, 2, torch.device("cpu"))
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.001)
    inputs = batch(0)

    def step() -> None:
        optimizer.zero_grad()
        loss(ddp(inputs[0]), inputs).backward()
        optimizer.step()

    for _ in range(4):
        step()
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in variants}
    shuffle = random.Random(0)
    for repetition in range(repetitions):
        for variant in shuffle.sample(variants, len(variants)):
            out = Path(folder) / f"{workload}-{repetition}-{variant.replace(' ', '-')}"
            out.mkdir(exist_ok=True)  # of both ranks
            measured[variant].append(block(workload, variant, step, ddp, out))
    if rank == 0:
        tell(workload, ddp, measured)
    dist.destroy_process_group()


def ratios(
    measured: dict[str, list[dict[str, float]]], variant: str, name: str, bare: str = "bare"
) -> str:
    """Median and quartiles of a variant's numbers, each over that of the bare block beside it."""
    pairs = zip(measured[variant], measured[bare], strict=True)
    found = sorted(one[name] / beside[name] for one, beside in pairs)
    low, middle, high = statistics.quantiles(found, n=4)
    return f"{middle:.3f} (quartiles {low:.3f}-{high:.3f})"
