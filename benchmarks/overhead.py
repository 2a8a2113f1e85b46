"""What recording costs a training process, beside no recording and beside torch.profiler.

Two gloo ranks train a built-in workload. Blocks of steps alternate between the variants in one
run, in an order that is shuffled anew each repetition, so that drift of a shared machine hits all
alike. Per repetition and rank: CPU time of the process (all threads, flush thread included) and
median step time, each divided by the bare block of the same repetition.

    python benchmarks/overhead.py [--workloads mlp,resnet,gpt] [--repetitions 9]
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

#: Steps of a block: some seconds, so that what a recorder costs once is not a step's cost.
STEPS = {"mlp": 200, "resnet": 30, "gpt": 60}
VARIANTS = ("bare", "recorded", "bare again", "torch.profiler")


def block(variant: str, steps: int, step: Any, ddp: Any, out: Path) -> dict[str, float]:
    """One block of steps under a variant: CPU seconds, median step seconds, bytes per step."""
    from ddpviz.probe import Recorder
    from ddpviz.recording import RankWriter

    recorder = profiler = None
    sent_bytes = 0
    if variant == "recorded":
        rank = dist.get_rank()
        writer = RankWriter(out, rank)

        def count(batch: Any) -> None:
            nonlocal sent_bytes
            sent_bytes += batch.records.nbytes

        recorder = Recorder(sinks=[writer, count], ring_path=out / f"rank-{rank:04d}.ring")
        recorder.install()
        recorder.adopt(ddp)
    elif variant == "torch.profiler":
        profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
        profiler.start()
    step()  # attaching is not part of a step's cost
    dist.barrier()
    begin_cpu = time.process_time()
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    if recorder is not None:
        recorder.flush()  # the flush thread's work belongs to the steps
    cpu = time.process_time() - begin_cpu
    dist.barrier()
    if recorder is not None:
        recorder.close()
    if profiler is not None:
        profiler.stop()
    return {
        "cpu_s": cpu,
        "step_s": statistics.median(times),
        "bytes": sent_bytes / (steps + 1),
    }


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
    ratios: dict[str, list[tuple[float, float]]] = {name: [] for name in VARIANTS}
    sizes = []
    bare_steps = []
    shuffle = random.Random(0)
    for repetition in range(repetitions):
        order = list(VARIANTS)
        shuffle.shuffle(order)
        got = {}
        for variant in order:
            out = Path(folder) / f"{workload}-{repetition}"
            got[variant] = block(variant, STEPS[workload], step, ddp, out)
        for variant in VARIANTS:
            ratios[variant].append(
                (
                    got[variant]["cpu_s"] / got["bare"]["cpu_s"],
                    got[variant]["step_s"] / got["bare"]["step_s"],
                )
            )
        sizes.append(got["recorded"]["bytes"])
        bare_steps.append(got["bare"]["step_s"])
    if rank == 0:
        parameters = sum(1 for p in ddp.parameters())
        print(
            f"{workload}: {parameters} parameters, bare step "
            f"{statistics.median(bare_steps) * 1000:.1f} ms, {repetitions} repetitions of "
            f"{STEPS[workload]} steps, {statistics.median(sizes):.0f} bytes per step and rank",
            flush=True,
        )
        for variant in VARIANTS[1:]:
            cpu = sorted(pair[0] for pair in ratios[variant])
            wall = sorted(pair[1] for pair in ratios[variant])
            print(
                f"  {variant:15} / bare   CPU {_spread(cpu)}   median step {_spread(wall)}",
                flush=True,
            )
    dist.destroy_process_group()


def _spread(values: list[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.3f} (quartiles {low:.3f}-{high:.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workloads", default="mlp,resnet,gpt")
    parser.add_argument("--repetitions", type=int, default=9)
    arguments = parser.parse_args()
    for workload in arguments.workloads.split(","):
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(run, (workload, arguments.repetitions, folder), nprocs=2)


if __name__ == "__main__":
    main()
