"""What recording costs a training process, beside no recording and beside torch.profiler.

Two gloo ranks, blocks that alternate in one run: see :mod:`benchmarks.interleaved`. Per repetition
and rank: CPU time of the process (all threads, flush thread included) and median step time.

    python -m benchmarks.overhead [--workloads mlp,resnet,gpt] [--repetitions 24]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.interleaved import measure, ratios

#: Steps of a block: a second or two. The machine drifts by more than the figure within seconds, so
#: many short blocks beside each other tell more than few long ones.
STEPS = {"mlp": 60, "resnet": 10, "gpt": 15}
VARIANTS = ("bare", "recorded", "bare again", "torch.profiler")


def block(
    workload: str, variant: str, step: Callable[[], None], ddp: Any, out: Path
) -> dict[str, float]:
    """One block of steps under a variant: CPU seconds, median step seconds, bytes per step."""
    from ddpviz.probe import Recorder
    from ddpviz.recording import RankWriter

    steps = STEPS[workload]
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


def tell(workload: str, ddp: Any, measured: dict[str, list[dict[str, float]]]) -> None:
    """A table of ratios."""
    bare = statistics.median(one["step_s"] for one in measured["bare"])
    nbytes = statistics.median(one["bytes"] for one in measured["recorded"])
    print(
        f"{workload}: {sum(1 for _ in ddp.parameters())} parameters, bare step {bare * 1000:.1f} "
        f"ms, {len(measured['bare'])} repetitions of {STEPS[workload]} steps, {nbytes:.0f} bytes "
        "per step and rank",
        flush=True,
    )
    for variant in VARIANTS[1:]:
        cpu, wall = (ratios(measured, variant, name) for name in ("cpu_s", "step_s"))
        print(f"  {variant:15} / bare   CPU {cpu}   median step {wall}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workloads", default="mlp,resnet,gpt")
    parser.add_argument("--repetitions", type=int, default=24)
    arguments = parser.parse_args()
    measure(arguments.workloads.split(","), VARIANTS, arguments.repetitions, block, tell)


if __name__ == "__main__":
    main()
