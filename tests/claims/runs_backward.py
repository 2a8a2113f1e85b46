"""What happens in a backward. Each returns what its rank saw."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import _apply_optimizer_in_backward

from tests.claims.models import Chain, Net, batch, layout, sent, step, wrap


def hooks(rank: int) -> dict[str, Any]:
    """Whether DDP had marked a parameter when its own Python hook ran."""
    ddp = wrap(Net())
    step(ddp, batch(rank))
    before = ddp.reducer.get_backward_stats()
    marked: list[bool] = []
    for index, parameter in enumerate(ddp.module.parameters()):

        def hook(parameter: torch.Tensor, index: int = index) -> None:
            marked.append(ddp.reducer.get_backward_stats()[index] != before[index])

        parameter.register_post_accumulate_grad_hook(hook)
    step(ddp, batch(rank, 1))
    after = ddp.reducer.get_backward_stats()
    changed = [now != then for now, then in zip(after, before, strict=True)]
    return {"marked in the hook": marked, "marked after": changed}


def order(rank: int) -> dict[str, Any]:
    """Registered against the order of use, so that the first bucket is ready last."""
    ddp = wrap(Chain(64, 6, backwards=True), find_unused_parameters=True, bucket_cap_mb=0.015)
    x = torch.randn(64, 64)
    step(ddp, x)
    plan = layout(ddp)
    collectives = sent(lambda: step(ddp, x))
    ready = ddp.reducer.get_backward_stats()
    return {
        "plan": plan,
        "full": [max(ready[i] for i in parameters) for parameters, _ in plan],
        "launched": [one[1] * 4 for one in collectives if one[0] == "all_reduce"],
    }


def quiet(rank: int) -> dict[str, Any]:
    """What backward does under no_sync, and in a static graph's first iteration."""
    ddp = wrap(Net())
    step(ddp, batch(rank))
    before = ddp.reducer.get_backward_stats()

    def inside() -> None:
        with ddp.no_sync():
            step(ddp, batch(rank, 1))

    collectives = [one for one in sent(inside) if one[0] == "all_reduce"]
    static = wrap(Net(), static_graph=True)
    first = [one for one in sent(lambda: step(static, batch(rank))) if one[0] == "all_reduce"]
    return {
        **_left_alone(rank),
        "rank": rank,
        "no_sync": collectives,
        "no_sync marked": ddp.reducer.get_backward_stats() != before,
        "static first": first,
        "static marked": any(static.reducer.get_backward_stats()),
    }


class Pair(nn.Module):
    """Two weights that multiply the input; ``use`` tells which have a part in the forward."""

    def __init__(self) -> None:
        super().__init__()
        self.always = nn.Parameter(torch.ones(1))
        self.sometimes = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor, both: bool) -> torch.Tensor:
        return x * self.always + (x * self.sometimes if both else 0.0)


def _left_alone(rank: int) -> dict[str, float]:
    """Gradients that are the rank's own after a backward; its own is 1 on rank 0, 3 on rank 1."""
    x = torch.full((1,), 1.0 + 2 * rank)
    ddp = wrap(Pair(), find_unused_parameters=True)
    with ddp.no_sync():
        ddp(x, True).sum().backward()
    found = {"under no_sync": float(ddp.module.sometimes.grad)}
    ddp(x, False).sum().backward()
    found["used in no_sync"] = float(ddp.module.sometimes.grad)
    ddp = wrap(Pair(), find_unused_parameters=True)
    ddp.module.sometimes.grad = x.clone()
    ddp(x, False).sum().backward()
    found["used nowhere"] = float(ddp.module.sometimes.grad)
    ddp = wrap(nn.Linear(1, 1, bias=False))
    losses = [ddp(x).sum(), ddp(x).sum()]
    for loss in losses:
        ddp.module.weight.grad = None
        loss.backward()
    found["second of two"] = float(ddp.module.weight.grad)
    return found


def summing(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A hook that forgets to divide."""
    future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return future.then(lambda done: done.value()[0])


def elsewhere(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A hook whose result is a tensor of its own."""
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(torch.full_like(bucket.buffer(), 7.0))
    return future


def gradients(rank: int) -> dict[str, Any]:
    """The gradient of a weight whose own is 1 on rank 0 and 3 on rank 1, and its storage."""

    def one(hook: Any = None, **arguments: Any) -> float:
        ddp = wrap(nn.Linear(1, 1, bias=False), **arguments)
        if hook is not None:
            ddp.register_comm_hook(None, hook)
        for _ in range(3):
            ddp.module.weight.grad = None
            ddp(torch.full((1, 1), 1.0 + 2 * rank)).sum().backward()
        return float(ddp.module.weight.grad)

    found: dict[str, Any] = {
        "default": one(),
        "bucket view": one(gradient_as_bucket_view=True),
        "hook without division": one(summing),
        "hook's own tensor, bucket view": one(elsewhere, gradient_as_bucket_view=True),
    }
    ddp = wrap(nn.Linear(1, 1, bias=False))
    seen: list[float] = []
    engine = torch.autograd.Variable._execution_engine

    def before(parameter: torch.Tensor) -> None:
        engine.queue_callback(first)

    def first() -> None:
        seen.append(float(ddp.module.weight.grad))
        engine.queue_callback(lambda: seen.append(float(ddp.module.weight.grad)))

    ddp.module.weight.register_post_accumulate_grad_hook(before)
    ddp(torch.full((1, 1), 1.0 + 2 * rank)).sum().backward()
    found["around finalize"] = seen
    return found


def indices(rank: int) -> list[list[int]]:
    """GradBucket.index() of each call of a hook, in two iterations of a static graph."""
    found: list[list[int]] = []

    def hook(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        found[-1].append(bucket.index())
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2).double()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x).double())

    hook.__annotations__ = {}
    ddp = wrap(Two(), static_graph=True)
    ddp.register_comm_hook(None, hook)
    for _ in range(2):
        found.append([])
        step(ddp, torch.ones(1, 2))
    return found


def optimizer_inside(rank: int) -> dict[str, bool]:
    """Whether weights change in a backward, with an ordinary optimizer and with one put there."""
    found = {}
    for inside in (False, True):
        model = nn.Linear(2, 2)
        if inside:
            _apply_optimizer_in_backward(torch.optim.SGD, model.parameters(), {"lr": 0.5})
        ddp = wrap(model)
        before = ddp.module.weight.detach().clone()
        try:
            step(ddp, torch.ones(1, 2))
        except RuntimeError as error:  # torch 2.13 wants a GPU's stream when all is done
            assert "accelerator" in str(error)
        found["inside" if inside else "outside"] = not torch.equal(before, ddp.module.weight)
    return found


def compiled_autograd(rank: int) -> str:
    """What a backward under compiled autograd says. Last: its module is left as it is."""
    from torch._dynamo import compiled_autograd

    ddp = wrap(nn.Linear(2, 2))
    loss = ddp(torch.ones(1, 2)).sum()
    try:
        with compiled_autograd._enable(lambda graph: graph):
            loss.backward()
    except RuntimeError as error:
        return str(error)
    return ""


for _hook in (summing, elsewhere):
    _hook.__annotations__ = {}  # DDP refuses annotations that are strings

RUNS = {
    "hooks": hooks,
    "order": order,
    "quiet": quiet,
    "gradients": gradients,
    "indices": indices,
    "optimizer inside": optimizer_inside,
    "compiled autograd": compiled_autograd,
}
