"""Kineto's JSON made by hand: every time is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MAIN, GLOO = 1, 2


def event(
    name: str, ts: float, dur: float, cat: str = "cpu_op", tid: Any = MAIN, **args: Any
) -> Any:
    """Times in µs."""
    return {
        "ph": "X", "cat": cat, "name": name, "pid": 7, "tid": tid, "ts": ts, "dur": dur,
        "args": args,
    }  # fmt: skip


def step(begin: float, late: float = 0.0) -> list[Any]:
    """A step of 1000 µs: forward with one broadcast, backward with two buckets of two gradients.

    ``late``: how much later this rank gets to its buckets; their ends stay.
    """
    note = "user_annotation"
    events = [
        event("DistributedDataParallel.forward", begin, 200, note),
        event("aten::flatten_dense_tensors", begin + 2, 6),
        event("c10d::broadcast_", begin + 10, 5),
        event("gloo:broadcast", begin + 20, 30, note, GLOO),
    ]
    for number in range(4):
        at = begin + 300 + 50 * number + late
        events += [
            event("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", at, 40),
            event("torch::distributed::reducer::mul_out", at + 5, 5),
        ]
        if number % 2:
            events += [
                event("c10d::allreduce_", at + 20, 10),
                event("gloo:all_reduce", at + 25, 350 - 50 * number - late + 100, note, GLOO),
            ]
    copy_out = "torch.distributed.ddp.reducer::copy_bucket_to_grad"
    events += [event(copy_out, begin + 800 + 5 * number, 5) for number in range(4)]
    return [*events, event("Optimizer.step#SGD.step", begin + 900, 100, note)]


def trace(rank: int | None = 0, steps: int = 3, shift: float = 0.0, **root: Any) -> dict[str, Any]:
    """A whole file; ``shift``: of its clock, in µs."""
    events = [one for number in range(steps) for one in step(1000.0 + 2000 * number + shift)]
    about: dict[str, Any] = {
        "host_name": f"host{rank}",
        "baseTimeNanoseconds": 1_700_000_000 * 10**9,
    }
    if rank is not None:
        about["distributedInfo"] = {"backend": "gloo", "rank": rank, "world_size": 2}
    return {**about, **root, "traceEvents": events}


def written(path: Path, content: Any) -> Path:
    """The file, with this content as JSON."""
    path.write_text(json.dumps(content), encoding="utf-8")
    return path
