"""Real DDP training in every mode that is recorded, as one function of rank and mode."""

from __future__ import annotations

import contextlib
import hashlib
import json
import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS = 20
#: DDP arguments by mode; a mode's own way of stepping is in ``train``.
MODES: dict[str, dict[str, Any]] = {
    "plain": {},
    "find_unused": {"find_unused_parameters": True},
    "static_graph": {"static_graph": True},
    "bucket_view": {"gradient_as_bucket_view": True},
    "no_sync": {},
    "python_hook": {},
    "builtin_hook": {},
    "join": {},
    "two_modules": {},
    "called_twice": {"broadcast_buffers": False},
    "no_buffers": {"broadcast_buffers": False},
}


class Net(nn.Module):
    """Convolution, BatchNorm and linear layers; ``side`` is left out where ``skip`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.side = nn.Linear(8, 8)
        self.hidden = nn.Linear(8, 64)
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor, skip: bool = False) -> torch.Tensor:
        x = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        if not skip:
            x = x + self.side(x)
        return self.head(torch.relu(self.hidden(x)))


def build(mode: str) -> list[DDP]:
    """The mode's DDP modules, wrapped now, with several buckets after the rebuild."""
    torch.manual_seed(0)
    modules = []
    for _ in range(2 if mode == "two_modules" else 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            modules.append(DDP(Net(), bucket_cap_mb=0.002, **MODES[mode]))
    if mode == "python_hook":
        modules[0].register_comm_hook(None, averaging_hook)
    if mode == "builtin_hook":
        modules[0]._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    return modules


def averaging_hook(state, bucket):  # type: ignore[no-untyped-def] # DDP refuses string annotations
    tensor = bucket.buffer().div_(dist.get_world_size())
    future = dist.all_reduce(tensor, async_op=True).get_future()
    return future.then(lambda done: done.value()[0])


def train(mode: str, rank: int, modules: list[DDP], steps: int, first: int = 0) -> list[Any]:
    """``steps`` steps from step ``first``; returns the Reducer's plan at the end of each."""
    parameters = [p for module in modules for p in module.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
    plans = []
    ends = steps + (rank if mode == "join" else 0)
    joined = Join(modules) if mode == "join" else contextlib.nullcontext()
    with joined:
        for step in range(first, first + ends):
            torch.manual_seed(1000 * rank + step)
            optimizer.zero_grad()
            _one_step(mode, step, modules)
            optimizer.step()
            plans.append([plan_of(module) for module in modules])
    return plans


def _one_step(mode: str, step: int, modules: list[DDP]) -> None:
    for module in modules:
        batch = torch.randn(4, 3, 8, 8)
        if mode == "no_sync":
            with module.no_sync():
                module(batch).square().mean().backward()
            module(batch).square().mean().backward()
        elif mode == "called_twice":
            loss = module(batch).square().mean() + module(batch * 2).square().mean()
            loss.backward()
        elif mode == "find_unused":
            module(batch, skip=step % 3 == 1).square().mean().backward()
        else:
            module(batch).square().mean().backward()


def plan_of(module: DDP) -> list[tuple[list[str], int]]:
    """The Reducer's own answer: per bucket the parameters' names and the bytes."""
    names = {id(p): name for name, p in module.module.named_parameters()}
    return [
        ([names[id(p)] for p in bucket.parameters()], bucket.buffer().numel() * 4)
        for bucket in module.reducer._get_zeros_like_grad_buckets()
    ]


def fingerprint(modules: list[DDP]) -> str:
    """One hash of every bit of parameters, buffers and gradients."""
    digest = hashlib.sha256()
    for module in modules:
        for tensor in [*module.parameters(), *module.buffers()]:
            digest.update(tensor.detach().numpy().tobytes())
            if tensor.grad is not None:
                digest.update(tensor.grad.numpy().tobytes())
    return digest.hexdigest()


#: gloo has a flight recorder on later torch only (on 2.13, not on 2.6).
HAS_FLIGHT_RECORDER = hasattr(torch._C._distributed_c10d, "_dump_fr_trace_json")


def flight() -> list[dict[str, Any]]:
    """The flight recorder's collectives so far, oldest first; none where torch has none.

    Slow after many: it dumps all there was.
    """
    if not HAS_FLIGHT_RECORDER:
        return []
    dump = json.loads(torch._C._distributed_c10d._dump_fr_trace_json())
    return sorted(dump.get("entries", []), key=lambda entry: entry["record_id"])


def flights(spans_ns: list[tuple[int, int]]) -> list[list[dict[str, Any]]]:
    """Those of each span of time, in one dump."""
    entries = flight()
    return [
        [entry for entry in entries if begin_ns <= entry["time_created_ns"] < end_ns]
        for begin_ns, end_ns in spans_ns
    ]


def shape(entry: dict[str, Any]) -> tuple[str, str, str]:
    """What a collective is, without when it was."""
    return entry["profiling_name"], str(entry["input_sizes"]), str(entry["input_dtypes"])
