"""What torch's profiler sees of a step, in several modes. Each returns rows of its rank."""

from __future__ import annotations

import inspect
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from tests.claims.models import Net, batch, step, wrap
from tests.claims.runs_backward import summing

_NAMES = (
    "c10d::",
    "gloo:",
    "torch::distributed::reducer::",
    "torch.distributed.ddp.reducer::",
    "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
    "aten::_foreach_copy_",
    "aten::div_",
    "inside the module",
    "torch/nn/parallel/distributed.py(",
    "torch/nn/modules/module.py(",
    "DistributedDataParallel.forward",
)


def _profile(function: Callable[[], Any], stack: bool = False) -> list[dict[str, Any]]:
    """Rows by begin: name, begin and end (µs), thread."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], with_stack=stack
    ) as profiler:
        function()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    rows = [
        {
            "name": event["name"],
            "begin": event["ts"],
            "end": event["ts"] + event["dur"],
            "thread": event["tid"],
        }
        for event in events
        if event.get("ph") == "X" and event["name"].startswith(_NAMES)
    ]
    return sorted(rows, key=lambda row: row["begin"])


class Marked(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.profiler.record_function("inside the module"):
            return super().forward(x)


def profiles(rank: int) -> dict[str, Any]:
    modes: dict[str, dict[str, Any]] = {
        "default": {},
        "hook": {},
        "bucket view": {"gradient_as_bucket_view": True},
    }
    if "batched_grad_copy" in inspect.signature(DDP.__init__).parameters:
        modes["batched"] = {"batched_grad_copy": True}
    found: dict[str, Any] = {}
    for name, given in modes.items():
        ddp = wrap(Marked(), bucket_cap_mb=0.0005, **given)
        if name == "hook":
            ddp.register_comm_hook(None, summing)
        for number in range(3):
            step(ddp, batch(rank, number))
        dist.barrier()
        found[name] = _profile(lambda ddp=ddp: step(ddp, batch(rank)), stack=name == "default")  # type: ignore
        found[f"{name}, buckets"] = len(ddp.reducer._get_zeros_like_grad_buckets())
    return found


def cut(rank: int) -> list[dict[str, Any]]:
    """A sync of eight buffers, one broadcast each."""
    net = Marked()
    for number in range(5):
        net.register_buffer(f"extra{number}", torch.zeros(1000))
    ddp = wrap(net)
    for number in range(3):
        step(ddp, batch(rank, number))
    ddp.broadcast_bucket_size = 1
    dist.barrier()
    return _profile(lambda: ddp(batch(rank)))


RUNS = {"profiles": profiles, "cut": cut}
