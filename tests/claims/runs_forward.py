"""What happens in and around a forward. Each returns what its rank saw."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.parallel.distributed import _BufferCommHookLocation

from tests.claims.models import Chain, Net, batch, called, sent, step, wrap


def functions(rank: int) -> list[tuple[int, str]]:
    ddp = wrap(Net())
    step(ddp, batch(rank))
    return called(lambda: ddp(batch(rank, 1)))


def broadcasts(rank: int) -> dict[str, Any]:
    """Collectives of each of four forwards, all of them with gradients."""
    ddp = wrap(Net())
    found = []
    for number in range(4):
        output: list[torch.Tensor] = []
        found.append(sent(lambda: output.append(ddp(batch(rank, number)))))  # noqa: B023
        output[0].square().mean().backward()
    return {"forwards": found, "bytes": sum(b.nbytes for b in ddp.module.buffers())}


def _fires(ddp: DDP, rank: int, modes: list[str]) -> list[int]:
    """Whether each forward syncs buffers: by mode "train", "eval" (no gradients), "no_sync"."""
    found = []
    for number, mode in enumerate(modes):
        calls: list[int] = []
        original = ddp._sync_buffers

        def noted(original: Any = original, calls: list[int] = calls) -> None:
            calls.append(1)
            original()

        ddp._sync_buffers = noted
        x = batch(rank, number)
        if mode == "eval":
            ddp.eval()
            with torch.no_grad():
                ddp(x)
            ddp.train()
        else:
            with ddp.no_sync() if mode == "no_sync" else contextlib.nullcontext():
                step(ddp, x)
        del ddp._sync_buffers
        found.append(len(calls))
    return found


def fired(rank: int) -> dict[str, list[int]]:
    hooked = wrap(Net())
    hooked._register_buffer_comm_hook(
        None, lambda state, buffers: None, _BufferCommHookLocation.PRE_FORWARD
    )
    step(hooked, batch(rank))
    return {
        "train": _fires(wrap(Net()), rank, ["train"] * 3),
        "around eval": _fires(wrap(Net()), rank, ["train", *["eval"] * 3, "train", "train"]),
        "around no_sync": _fires(
            wrap(Net()), rank, ["train", "no_sync", "no_sync", "train", "train", "train"]
        ),
        "off": _fires(wrap(Net(), broadcast_buffers=False), rank, ["train"] * 3),
        "without buffers": _fires(wrap(nn.Sequential(nn.Flatten(), nn.Linear(192, 2))), rank,
                                  ["train"] * 2),
        "broadcasts of a hooked forward": [
            len([one for one in sent(lambda: step(hooked, batch(rank, 9))) if one[2] == "Long"])
        ],
    }  # fmt: skip


class Watched(Net):
    """Notes its buffers as a forward begins."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = self.norm.running_mean
        self.began = (mean.tolist(), mean._version)
        return super().forward(x)


def drift(rank: int) -> dict[str, Any]:
    """running_mean after each forward and as the next begins; parameters after all."""
    ddp = wrap(Watched())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    began, ended, versions = [], [], []
    for number in range(4):
        before = ddp.module.norm.running_mean._version
        step(ddp, batch(rank, number), optimizer)
        began.append(ddp.module.began[0])
        versions.append((before, ddp.module.began[1]))
        ended.append(ddp.module.norm.running_mean.tolist())
    ddp.eval()
    x = batch(0)
    with torch.no_grad():
        inner = ddp.module(x).tolist()
        ddp(x)
        repaired = ddp.module.norm.running_mean.tolist()
    return {
        "began": began,
        "ended": ended,
        "versions": versions,
        "state dict": ended[-1],
        "inner output": inner,
        "repaired": repaired,
        "parameters": [p.detach().numpy().tobytes() for p in ddp.module.parameters()],
    }


class Replacing(nn.Module):
    """Replaces its buffer in each forward by a new tensor of the rank's own."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(1))
        self.rank, self.began = rank, []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.began.append(float(self.seen))
        self.seen = torch.full((1,), 10.0 + self.rank)
        return self.layer(x)


def replaced(rank: int) -> list[float]:
    ddp = wrap(Replacing(rank))
    for _ in range(3):
        step(ddp, torch.ones(2, 4))
    return list(ddp.module.began)


def sizes(rank: int) -> dict[str, Any]:
    ddp = wrap(Net())
    step(ddp, batch(rank))
    step(ddp, batch(rank))
    ddp.broadcast_bucket_size = 1
    return {"size": wrap(Net()).broadcast_bucket_size, "cut": sent(lambda: ddp(batch(rank)))}


def active(rank: int) -> list[bool]:
    """Whether the outer module is the active one: before, after an inner DDP's forward, outside."""
    found: list[bool] = []

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = wrap(nn.Linear(4, 4))
            self.last = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found.append(DDP._active_ddp_module is outer)
            x = self.inner(x)
            found.append(DDP._active_ddp_module is outer)
            return self.last(x)

    outer = wrap(Outer())
    outer(torch.ones(2, 4))
    found.append(DDP._active_ddp_module is None)
    return found


def unused(rank: int) -> dict[str, Any]:
    """A layer that is left out: its ready time before and after the backward."""
    ddp = wrap(Chain(8, 3, skip=1), find_unused_parameters=True, bucket_cap_mb=0.0001)
    x = torch.randn(2, 8)
    step(ddp, x)
    before = ddp.reducer.get_backward_stats()
    output: list[torch.Tensor] = []
    collectives = sent(lambda: output.append(ddp(x)))
    between = ddp.reducer.get_backward_stats()
    output[0].square().mean().backward()
    after = ddp.reducer.get_backward_stats()
    return {
        "left out": [2, 3],
        "in forward": collectives,
        "marked in forward": [i for i in range(6) if between[i] != before[i]],
        "order": sorted(range(6), key=after.__getitem__),
    }


def sinks(rank: int) -> dict[str, Any]:
    """grad_fn of the output in three iterations, and whether the output is the module's own."""
    found: dict[str, Any] = {}
    x = torch.randn(2, 8)
    for name, given in (
        ("default", {}),
        ("find unused", {"find_unused_parameters": True}),
        ("static", {"static_graph": True}),
    ):
        ddp = wrap(Chain(8, 2), **given)
        inner: list[torch.Tensor] = []
        ddp.module.register_forward_hook(lambda m, i, output, inner=inner: inner.append(output))  # type: ignore
        rows = []
        for _ in range(3):
            output = ddp(x)
            own = inner[-1].data_ptr() == output.data_ptr()
            rows.append((output.grad_fn.name(), own))
            output.square().mean().backward()
        found[name] = rows
    return found


def join(rank: int) -> dict[str, Any]:
    """Rank 0 takes one step, rank 1 two; buffers that are the rank's number before each."""
    ddp = wrap(Watched())
    common: list[int] = []
    original = ddp._find_common_rank

    def noted(*arguments: Any) -> int:
        common.append(original(*arguments))
        return common[-1]

    ddp._find_common_rank = noted
    began = []

    def train() -> None:
        with Join([ddp]):
            for number in range(1 + rank):
                with torch.no_grad():
                    ddp.module.norm.running_mean.fill_(rank)
                step(ddp, batch(rank, number))
                began.append(ddp.module.began[0][0])

    collectives = sent(train)
    return {"common": common, "began": began, "collectives": collectives}


def divided(rank: int) -> dict[str, list[float]]:
    """The gradient at rank 1's steps, where rank 0 has data for the first only."""
    found = {}
    for initial in (True, False):
        ddp = wrap(nn.Linear(1, 1, bias=False))
        norms = []
        with Join([ddp], divide_by_initial_world_size=initial):
            for _ in range(1 + rank):
                ddp.module.weight.grad = None
                ddp(torch.ones(1, 1)).sum().backward()
                norms.append(float(ddp.module.weight.grad))
        found[f"initial {initial}"] = norms
    dist.barrier()
    return found


RUNS = {
    "functions": functions,
    "broadcasts": broadcasts,
    "fired": fired,
    "drift": drift,
    "replaced": replaced,
    "sizes": sizes,
    "active": active,
    "unused": unused,
    "sinks": sinks,
    "join": join,
    "divided": divided,
}
