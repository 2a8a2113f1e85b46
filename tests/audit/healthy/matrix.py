"""The built-in workloads under each knob, comm hook and compile mode, and the scenarios that other
tests train. Each is long enough for what is told of many steps to be told."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from ddpviz.engines.workloads import WORKLOADS
from tests.audit.healthy.hooks import averaging
from tests.audit.nets import sgd, wrap
from tests.audit.recorded import Runs
from tests.fidelity import scenarios

#: Three steps more than what is slow has to be seen in, after the first that say nothing.
STEPS = 16
#: With find_unused_parameters: that it brings nothing is told after ten backwards.
_SEARCHED = 8
#: Of the workload that takes longest, where it has arguments.
_FEW = 4


def of_mode(mode: str, rank: int) -> None:
    """A mode of the scenarios; with more steps than a needless search would take to be told."""
    scenarios.train(mode, rank, scenarios.build(mode), 6)


def of_workload(
    name: str,
    rank: int,
    arguments: dict[str, Any] | None = None,
    hook: str = "",
    compiled: str = "",
) -> None:
    """A built-in workload under DDP's arguments, a comm hook, a value of optimize_ddp."""
    build = importlib.import_module(WORKLOADS[name]).build
    model, batch, loss = build(rank, 2, torch.device("cpu"), **_SIZES[name])
    ddp = wrap(model, **arguments or {})
    if hook:
        ddp.register_comm_hook(*HOOKS[hook]())
    forward: Any = ddp
    if compiled:
        torch._dynamo.reset()
        torch._dynamo.config.optimize_ddp = compiled
        forward = torch.compile(ddp, backend="aot_eager")
    optimizer = sgd(ddp, 0.01)
    for step in range(_steps(name, arguments or {})):
        optimizer.zero_grad()
        inputs = batch(step)
        loss(forward(inputs[0]), inputs).backward()
        optimizer.step()
    if compiled:
        torch._dynamo.config.optimize_ddp = True


def _steps(name: str, arguments: dict[str, Any]) -> int:
    if arguments.get("find_unused_parameters"):
        return _SEARCHED
    return _FEW if name == "resnet" and arguments else STEPS


_SIZES: dict[str, dict[str, int]] = {
    "mlp": {"layers": 6, "width": 64},
    "convnet": {},
    "resnet": {"image_size": 32, "batch_size": 2},
    "gpt": {"layers": 2, "width": 64, "vocabulary": 128},
}
KNOBS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "small buckets": {"bucket_cap_mb": 0.05},
    "views": {"gradient_as_bucket_view": True},
    "static": {"static_graph": True},
    "search": {"find_unused_parameters": True},
    "no buffers": {"broadcast_buffers": False},
}
#: By name, what makes the state and the hook. That of bf16 is refused without NCCL;
#: PowerSGD of several buckets sends from gloo's threads, in an order of their own on each rank.
HOOKS: dict[str, Callable[[], tuple[Any, Callable[..., Any]]]] = {
    "allreduce": lambda: (None, default_hooks.allreduce_hook),
    "fp16": lambda: (None, default_hooks.fp16_compress_hook),
    "a program's own": lambda: (None, averaging),
}
#: The Python reducer has a process of its own in the tests of what is compiled.
MODES_OF_COMPILE = ("ddp_optimizer", "no_optimization")
#: (workload, knob) that are compiled. DDPOptimizer refuses a cap below its first bucket's.
_COMPILED = [
    *(("mlp", knob) for knob in KNOBS if knob != "small buckets"),
    ("gpt", "defaults"),
    ("gpt", "views"),
]

MODES: Runs = {
    **{f"mode {mode}": functools.partial(of_mode, mode) for mode in scenarios.MODES},
    **{
        f"{name}, {knob}": functools.partial(of_workload, name, arguments=arguments)
        for name in _SIZES
        for knob, arguments in KNOBS.items()
    },
    **{
        f"{name}, hook {hook}": functools.partial(of_workload, name, hook=hook)
        for name in _SIZES
        for hook in HOOKS
    },
    **{
        f"{name}, {knob}, {mode}": functools.partial(
            of_workload, name, arguments=KNOBS[knob], compiled=mode
        )
        for name, knob in _COMPILED
        for mode in MODES_OF_COMPILE
    },
    **{
        f"mlp, views, hook {hook}, {mode}": functools.partial(
            of_workload, "mlp", arguments=KNOBS["views"], hook=hook, compiled=mode
        )
        for hook in ("fp16", "a program's own")
        for mode in MODES_OF_COMPILE
    },
}
