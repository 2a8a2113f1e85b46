"""What happens in DDP's constructor, and what plan it makes. Each returns what its rank saw."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from tests.claims.models import Chain, Net, batch, called, layout, sent, step, wrap

HAS_NEW_FLAG = "forward_sync_buffers" in inspect.signature(DDP.__init__).parameters


def constructor(rank: int) -> dict[str, Any]:
    coalesced: list[int] = []
    original = dist._broadcast_coalesced

    def counted(group: Any, tensors: Any, *rest: Any) -> Any:
        coalesced.append(len(tensors))
        return original(group, tensors, *rest)

    dist._broadcast_coalesced = counted
    try:
        default = sent(lambda: wrap(Net()))
    finally:
        dist._broadcast_coalesced = original
    found = {
        "functions": [name for _, name in called(lambda: wrap(Net()))],
        "default": default,
        "calls": coalesced,
        "without sync": sent(lambda: wrap(Net(), init_sync=False)),
        "old flag off": sent(lambda: wrap(Net(), broadcast_buffers=False)),
    }
    if HAS_NEW_FLAG:
        found["new flag off"] = sent(lambda: wrap(Net(), forward_sync_buffers=False))
    return found


def starting_values(rank: int) -> dict[str, Any]:
    """A parameter and a buffer after construction, where ranks began with their own number."""

    def made() -> Net:
        net = Net()
        nn.init.constant_(net.conv.weight, float(rank))
        nn.init.constant_(net.head.weight, float(rank))
        net.norm.running_mean.fill_(rank)
        return net

    ignoring = made()
    DDP._set_params_and_buffers_to_ignore_for_model(ignoring, ["head.weight"])
    variants = {
        "default": wrap(made()),
        "without sync": wrap(made(), init_sync=False),
        "old flag off": wrap(made(), broadcast_buffers=False),
        "ignored": wrap(ignoring),
    }
    return {
        name: {
            "conv": float(ddp.module.conv.weight[0, 0, 0, 0]),
            "head": float(ddp.module.head.weight[0, 0]),
            "mean": float(ddp.module.norm.running_mean[0]),
        }
        for name, ddp in variants.items()
    }


def accumulators(rank: int) -> dict[str, bool]:
    """Whether a parameter's accumulator outlives the one who asked for it."""

    def survives(parameter: torch.Tensor) -> bool:
        def node() -> Any:
            return parameter.expand_as(parameter).grad_fn.next_functions[0][0]

        node().metadata["mine"] = True
        return "mine" in node().metadata

    model = Net()
    before = survives(model.head.weight)
    kept = wrap(model)
    found = {"bare": before, "wrapped": survives(model.head.weight)}
    step(kept, batch(rank))
    found["all ready"] = all(ready > 0 for ready in kept.reducer.get_backward_stats())
    return found


def plans(rank: int) -> dict[str, Any]:
    """Layouts, first and after three steps; every layer has 1 MiB of weights."""
    found: dict[str, Any] = {}
    arguments: dict[str, dict[str, Any]] = {
        "default": {},
        "find unused": {"find_unused_parameters": True},
        "find unused, 2 MiB": {"find_unused_parameters": True, "bucket_cap_mb": 2},
        "cap 2 MiB": {"bucket_cap_mb": 2},
        "static": {"static_graph": True, "bucket_cap_mb": 2},
    }
    x = torch.randn(2, 512)
    for name, given in arguments.items():
        ddp = wrap(Chain(512, 6), **given)
        layouts, rebuilt, extra = [layout(ddp)], [], []
        for _ in range(3):
            output: list[torch.Tensor] = []
            collectives = sent(lambda ddp=ddp, output=output: output.append(ddp(x)))  # type: ignore
            extra.append([one for one in collectives if one[2] == "Int"])
            rebuilt.append(ddp._has_rebuilt_buckets)
            output[0].square().mean().backward()
        layouts.append(layout(ddp))
        sizes = [parameter.nbytes for parameter in ddp.module.parameters()]
        found[name] = {"layouts": layouts, "rebuilt": rebuilt, "extra": extra, "sizes": sizes}
    return found


def flags(rank: int) -> dict[str, Any]:
    """What the old and the new name of the flag do."""
    found: dict[str, Any] = {"names": list(inspect.signature(DDP.__init__).parameters)}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        old = DDP(Net(), broadcast_buffers=False)
    found["warned"] = [warning.category.__name__ for warning in said]
    found["alias"] = getattr(old, "forward_sync_buffers", None)
    return found


def sync_batchnorm(rank: int) -> str:
    try:
        wrap(nn.SyncBatchNorm.convert_sync_batchnorm(Net()))
    except ValueError as error:
        return str(error)
    return ""


RUNS = {
    "constructor": constructor,
    "starting values": starting_values,
    "accumulators": accumulators,
    "plans": plans,
    "flags": flags,
    "sync batchnorm": sync_batchnorm,
}
