"""What fingerprints cost a training process: CPU time, beside recording without them.

Two gloo ranks train a built-in workload. Blocks of steps alternate between the variants in one
run, in an order that is shuffled anew each repetition, so that drift of a shared machine hits all
alike. Per repetition and rank: CPU time of the process (all threads), divided by the block without
recording of the same repetition. A block of "every 20 steps" is as long as its schedule, so each
has one sampled step.

    python benchmarks/audit.py [--workloads resnet,gpt] [--repetitions 7]
"""

from __future__ import annotations

import argparse
import importlib
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from ddpviz.engines.workloads import WORKLOADS

#: Steps of a block: one period of the longest schedule.
STEPS = 20
#: In how many steps one is sampled, by variant; None records nothing at all.
VARIANTS: dict[str, int | None] = {
    "bare": None,
    "bare again": None,
    "recorded": 0,
    "every 20 steps": 20,
    "every step": 1,
}


def block(every: int | None, step: Any, ddp: Any, out: Path) -> float:
    """CPU seconds of one block of steps."""
    from ddpviz.probe import Recorder
    from ddpviz.recording import RankWriter

    recorder = None
    if every is not None:
        rank = dist.get_rank()
        writer = RankWriter(out, rank)
        ring = out / f"rank-{rank:04d}.ring"
        recorder = Recorder(sinks=[writer], ring_path=ring, fingerprints=every)
        recorder.install()
        recorder.adopt(ddp)
    dist.barrier()
    begin = time.process_time()
    for _ in range(STEPS):
        step()
    if recorder is not None:
        recorder.flush()  # the flush thread's work belongs to the steps
    cpu = time.process_time() - begin
    dist.barrier()
    if recorder is not None:
        recorder.close()
    return cpu


def run(rank: int, workload: str, repetitions: int, folder: str) -> None:
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
    ratios: dict[str, list[float]] = {name: [] for name in VARIANTS}
    bare = []
    shuffle = random.Random(0)
    for repetition in range(repetitions):
        order = list(VARIANTS)
        shuffle.shuffle(order)
        got = {}
        for name in order:
            out = Path(folder) / f"{workload}-{repetition}-{name.replace(' ', '-')}"
            out.mkdir(exist_ok=True)
            got[name] = block(VARIANTS[name], step, ddp, out)
        bare.append(got["bare"] / STEPS)
        for name in VARIANTS:
            ratios[name].append(got[name] / got["bare"])
    if rank == 0:
        parameters = sum(parameter.numel() for parameter in ddp.parameters())
        print(
            f"{workload}: {parameters / 1e6:.1f} million parameters, "
            f"{statistics.median(bare) * 1000:.0f} ms of CPU per bare step, {repetitions} "
            f"repetitions of {STEPS} steps",
            flush=True,
        )
        for name in list(VARIANTS)[1:]:
            low, middle, high = statistics.quantiles(sorted(ratios[name]), n=4)
            print(
                f"  {name:15} / bare   CPU {middle:.3f} (quartiles {low:.3f}-{high:.3f})",
                flush=True,
            )
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workloads", default="resnet,gpt")
    parser.add_argument("--repetitions", type=int, default=7)
    arguments = parser.parse_args()
    for workload in arguments.workloads.split(","):
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(run, (workload, arguments.repetitions, folder), nprocs=2)


if __name__ == "__main__":
    main()
