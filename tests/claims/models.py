"""Small models and witnesses for the runs: what was sent, what the Reducer's plan is."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from tests.fidelity.scenarios import flight

_OF_DDP = "torch/nn/parallel/distributed.py"
_OTHERS = (
    "_call_impl",
    "notify_join_context",
    "_verify_param_shape_across_processes",
    "_sync_module_states",
)


class Net(nn.Module):
    """A convolution, BatchNorm and a linear layer: buffers of two dtypes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


class Chain(nn.Module):
    """Linear layers one after the other, ``layers`` registered in the order of use or against it.

    ``skip``: the layer that is left out of the forward.
    """

    def __init__(
        self, width: int, layers: int, backwards: bool = False, skip: int | None = None
    ) -> None:
        super().__init__()
        made = [nn.Linear(width, width) for _ in range(layers)]
        self.layers = nn.ModuleList(reversed(made) if backwards else made)
        self.backwards, self.skip = backwards, skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        in_use = list(reversed(self.layers)) if self.backwards else list(self.layers)
        for position, layer in enumerate(in_use):
            if position != self.skip:
                x = torch.relu(layer(x))
        return x


def wrap(model: nn.Module, **arguments: Any) -> DDP:
    """In DDP, without the warning that an old argument's name gets."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return DDP(model, **arguments)


def batch(rank: int, step: int = 0) -> torch.Tensor:
    """Another one for every rank and step."""
    torch.manual_seed(100 * rank + step)
    return torch.randn(4, 3, 8, 8)


def step(ddp: DDP, x: torch.Tensor, optimizer: torch.optim.Optimizer | None = None) -> None:
    """Forward and backward; the optimizer's step where there is one."""
    ddp(x).square().mean().backward()
    if optimizer is not None:
        optimizer.step()
        optimizer.zero_grad()


def names(ddp: DDP) -> list[str]:
    """Parameters in the Reducer's order."""
    return [name for name, parameter in ddp.module.named_parameters() if parameter.requires_grad]


def layout(ddp: DDP) -> list[tuple[list[int], int]]:
    """The Reducer's buckets in launch order: indices of parameters, bytes."""
    index = {id(parameter): i for i, parameter in enumerate(ddp.module.parameters())}
    return [
        ([index[id(p)] for p in bucket.parameters()], bucket.buffer().nbytes)
        for bucket in ddp.reducer._get_zeros_like_grad_buckets()
    ]


def sent(function: Callable[[], Any]) -> list[tuple[str, int, str]]:
    """Collectives that a call makes, by the flight recorder: operation, elements, dtype."""
    before = len(flight())
    function()
    found = []
    for entry in flight()[before:]:
        count = 1
        for size in entry["input_sizes"][0] if entry["input_sizes"] else ():
            count *= size
        dtype = entry["input_dtypes"][0] if entry["input_dtypes"] else ""
        found.append((entry["profiling_name"].removeprefix("gloo:"), count, dtype))
    return found


def called(function: Callable[[], Any]) -> list[tuple[int, str]]:
    """DDP's functions and c10d's builtins that a call runs, with how deep they stand."""
    found: list[tuple[int, str]] = []
    open_: list[Any] = []

    def event(frame: Any, what: str, argument: Any) -> None:
        code = frame.f_code
        if what == "call" and (_OF_DDP in code.co_filename or code.co_name in _OTHERS):
            found.append((len(open_), code.co_name))
            open_.append(frame)
        elif what == "c_call" and getattr(argument, "__module__", "") == (
            "torch._C._distributed_c10d"
        ):
            found.append((len(open_), argument.__name__))
        elif what == "return" and open_ and open_[-1] is frame:
            open_.pop()

    sys.setprofile(event)
    try:
        function()
    finally:
        sys.setprofile(None)
    return found
