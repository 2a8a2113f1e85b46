"""What fingerprints cost a training process: CPU time, beside recording without them.

Two gloo ranks, blocks that alternate in one run: see :mod:`benchmarks.interleaved`. A block of
"every 20 steps" is as long as its schedule, so each has one sampled step.

    python -m benchmarks.audit [--workloads resnet,gpt] [--repetitions 7]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist

from benchmarks.interleaved import measure, ratios

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


def block(
    workload: str, variant: str, step: Callable[[], None], ddp: Any, out: Path
) -> dict[str, float]:
    """CPU seconds of one block of steps."""
    from ddpviz.probe import Recorder
    from ddpviz.recording import RankWriter

    recorder, every = None, VARIANTS[variant]
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
    return {"cpu_s": cpu}


def tell(workload: str, ddp: Any, measured: dict[str, list[dict[str, float]]]) -> None:
    """A table of ratios."""
    bare = statistics.median(one["cpu_s"] for one in measured["bare"]) / STEPS
    parameters = sum(parameter.numel() for parameter in ddp.parameters())
    print(
        f"{workload}: {parameters / 1e6:.1f} million parameters, {bare * 1000:.0f} ms of CPU per "
        f"bare step, {len(measured['bare'])} repetitions of {STEPS} steps",
        flush=True,
    )
    for variant in list(VARIANTS)[1:]:
        print(f"  {variant:15} / bare   CPU {ratios(measured, variant, 'cpu_s')}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workloads", default="resnet,gpt")
    parser.add_argument("--repetitions", type=int, default=7)
    arguments = parser.parse_args()
    measure(arguments.workloads.split(","), list(VARIANTS), arguments.repetitions, block, tell)


if __name__ == "__main__":
    main()
