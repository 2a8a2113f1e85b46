"""What recording costs on GPUs: median step time recorded, and under torch.profiler, beside bare.

    python -m benchmarks.gpu [--repetitions 9]

One rank per GPU with NCCL. Blocks of steps alternate in one run, in an order shuffled anew each
repetition; the device is waited for at the ends of a block only. Goals: at most 1.005 of bare on
ResNet-50 (batch 64, channels_last, bf16), 1.01 on a small step of a few milliseconds.
Not yet run on a GPU.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

STEPS = {"resnet-50": 60, "small": 400}
VARIANTS = ("bare", "recorded", "bare again", "torch.profiler")


def build(workload: str, device: torch.device) -> tuple[Any, torch.Tensor]:
    """A DDP module and a batch."""
    from ddpviz.engines.workloads.resnet import resnet

    torch.manual_seed(0)
    if workload == "resnet-50":
        model = resnet(50, 1000).to(device, memory_format=torch.channels_last)
        batch = torch.randn(64, 3, 224, 224, device=device)
        batch = batch.to(memory_format=torch.channels_last)
    else:
        layers = [layer for _ in range(8) for layer in (torch.nn.Linear(512, 512), torch.nn.ReLU())]
        model, batch = torch.nn.Sequential(*layers).to(device), torch.randn(64, 512, device=device)
    return torch.nn.parallel.DistributedDataParallel(model, device_ids=[device]), batch


def block(variant: str, steps: int, step: Any, ddp: Any, out: Path) -> float:
    """Seconds per step of a block under a variant."""
    import ddpviz

    attachment = profiler = None
    if variant == "recorded":
        attachment = ddpviz.attach(ddp, out)
    elif variant == "torch.profiler":
        profiler = torch.profiler.profile()
        profiler.start()
    for _ in range(3):  # attaching is not part of a step's cost
        step()
    torch.cuda.synchronize()
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    took = time.perf_counter() - begin
    dist.barrier()
    if attachment is not None:
        attachment.close()
    if profiler is not None:
        profiler.stop()
    return took / steps


def run(rank: int, world_size: int, workload: str, repetitions: int, folder: str) -> None:
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=world_size,
        device_id=device,
    )
    ddp, batch = build(workload, device)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.001)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=workload == "resnet-50"):
            loss = ddp(batch).float().square().mean()
        loss.backward()
        optimizer.step()

    for _ in range(10):
        step()
    times: dict[str, list[float]] = {name: [] for name in VARIANTS}
    shuffle = random.Random(0)
    for repetition in range(repetitions):
        for variant in shuffle.sample(VARIANTS, len(VARIANTS)):
            out = Path(folder) / f"{workload}-{repetition}"
            times[variant].append(block(variant, STEPS[workload], step, ddp, out))
    if rank == 0:
        bare = statistics.median(times["bare"])
        print(f"{workload}: {world_size} ranks, bare step {bare * 1000:.2f} ms", flush=True)
        for variant in VARIANTS[1:]:
            ratios = [a / b for a, b in zip(times[variant], times["bare"], strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            print(f"  {variant:15} / bare  {middle:.4f} (quartiles {low:.4f}-{high:.4f})")
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repetitions", type=int, default=9)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("found no CUDA device, expected at least one: this measures on GPUs")
    world_size = torch.cuda.device_count()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for workload in STEPS:
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(run, (world_size, workload, arguments.repetitions, folder), nprocs=world_size)


if __name__ == "__main__":
    main()
