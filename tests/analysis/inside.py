"""Real runs on three ranks in which DDP does one thing after the other that the article tells of.

One set of processes for all of them; each gives the batches of its own recorder.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.parallel.distributed import _BufferCommHookLocation as Location

from ddpviz.recording import Recording
from tests.ranks import run_ranks

RANKS = 3
#: In MiB: buckets of 2 KiB, so that the little network has several.
CAP = 0.002
#: The step in which one rank's replica is changed behind DDP's back, and the rank.
CHANGED_STEP, CHANGED_RANK = 2, 1


class Net(nn.Module):
    """Normalized convolution and linear layers; ``side`` is left out where ``skip`` is set."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.side = nn.Linear(8, 8)
        self.hidden = nn.Linear(8, width)
        self.head = nn.Linear(width, 4)

    def forward(self, x: torch.Tensor, skip: bool = False) -> Any:
        x = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        if not skip:
            x = x + self.side(x)
        return {"out": [self.head(torch.relu(self.hidden(x)))]}


def wrapped(model: nn.Module | None = None, **arguments: Any) -> DDP:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return DDP(Net() if model is None else model, **arguments)


def backward(ddp: DDP, rank: int, number: int, skip: bool = False) -> None:
    torch.manual_seed(1000 * rank + number)  # other batches on each rank
    ddp(torch.randn(4, 3, 6, 6), skip=skip)["out"][0].square().mean().backward()


def train(ddp: DDP, rank: int, steps: int, **how: Any) -> None:
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    for step in range(steps):
        optimizer.zero_grad()
        backward(ddp, rank, step, **how)
        optimizer.step()


# --- what DDP does with buffers ------------------------------------------------------------------


def around_no_sync(rank: int) -> None:
    """Six forwards, the second and the third in no_sync."""
    ddp = wrapped()
    for number in range(6):
        if number in (1, 2):
            with ddp.no_sync():
                backward(ddp, rank, number)
        else:
            backward(ddp, rank, number)


def around_eval(rank: int) -> None:
    """A step, three forwards without gradients, two steps."""
    ddp = wrapped()
    train(ddp, rank, 1)
    ddp.eval()
    with torch.no_grad():
        for _ in range(3):
            ddp(torch.ones(1, 3, 6, 6))
    ddp.train()
    train(ddp, rank, 2)


def switched_off(rank: int) -> None:
    train(wrapped(broadcast_buffers=False), rank, 2)


def without_buffers(rank: int) -> None:
    ddp = wrapped(nn.Linear(2, 2))
    for _ in range(2):
        ddp(torch.ones(1, 2)).sum().backward()


def drifting(rank: int) -> None:
    """Four steps; and a buffer that nobody writes to."""
    model = Net()
    model.register_buffer("constant", torch.arange(3.0))
    train(wrapped(model), rank, 4)


def reassigned(rank: int) -> None:
    ddp = wrapped()
    train(ddp, rank, 2)
    ddp.module.norm.running_mean = torch.full((8,), float(rank))
    ddp.module.register_buffer("late", torch.zeros(1))
    train(ddp, rank, 2)


def hooked(location: Location) -> Callable[[int], None]:
    def run(rank: int) -> None:
        ddp = wrapped()
        ddp._register_buffer_comm_hook(None, averaged, location)
        train(ddp, rank, 3)

    return run


def averaged(state: object, buffers: dict[str, torch.Tensor]) -> Any:
    works = []
    for buffer in buffers.values():
        buffer //= RANKS if buffer.dtype is torch.int64 else 1
        if buffer.is_floating_point():
            buffer /= RANKS
        works.append(dist.all_reduce(buffer, async_op=True))
    return [work.get_future() for work in works]


def hooked_on_the_group(rank: int) -> None:
    """A buffer hook that sends over the module's own group."""
    ddp = wrapped()

    def sums(state: object, buffers: dict[str, torch.Tensor]) -> Any:
        for buffer in buffers.values():
            if buffer.is_floating_point():
                dist.all_reduce(buffer, group=ddp.process_group)
        return []

    ddp._register_buffer_comm_hook(None, sums, Location.PRE_FORWARD)
    train(ddp, rank, 2)


def repaired(rank: int) -> None:
    """Rank 1 writes to a buffer that is constant elsewhere, before each forward."""
    model = Net()
    model.register_buffer("table", torch.arange(3.0))
    ddp = wrapped(model)
    for number in range(4):
        if rank == 1:
            ddp.module.table += 1
        backward(ddp, rank, number)


def stages(rank: int) -> None:
    """Ranks 0 and 1 have one model, rank 2 another, as stages of a pipeline have."""
    groups = [dist.new_group([0, 1]), dist.new_group([2])]
    torch.manual_seed(7 if rank < 2 else 8)
    train(DDP(Net(), process_group=groups[rank == 2]), rank, 2)


def put_off(rank: int) -> None:
    """One parameter is reduced by a hook of its own."""
    model = Net()
    weight = model.conv.weight
    ddp = wrapped(
        model,
        delay_all_reduce_named_params=[("conv.weight", weight)],
        param_to_hook_all_reduce=weight,
    )
    train(ddp, rank, 2)


def joined(rank: int) -> None:
    """Rank 2 has no batch, rank 1 two, rank 0 four."""
    ddp = wrapped(Net(), bucket_cap_mb=CAP)
    with Join([ddp]):
        for number in range((4, 2, 0)[rank]):
            backward(ddp, rank, number)


def joined_by_rest(rank: int) -> None:
    """As joined; gradients are divided by the ranks that are left."""
    ddp = wrapped(Net(), bucket_cap_mb=CAP)
    with Join([ddp], divide_by_initial_world_size=False):
        for number in range((4, 2, 0)[rank]):
            backward(ddp, rank, number)


# --- gradients and replicas ----------------------------------------------------------------------


def hook_averages(state, bucket):  # type: ignore[no-untyped-def] # DDP refuses string annotations
    work = dist.all_reduce(bucket.buffer().div_(RANKS), async_op=True)
    return work.get_future().then(lambda done: done.value()[0])


def hook_forgets(state, bucket):  # type: ignore[no-untyped-def]
    """On one rank the sum is left a sum."""
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    count = 1 if dist.get_rank() == CHANGED_RANK else RANKS
    return work.get_future().then(lambda done: done.value()[0] / count)


def with_hook(hook: Any, **arguments: Any) -> Callable[[int], None]:
    def run(rank: int) -> None:
        ddp = wrapped(bucket_cap_mb=CAP, **arguments)
        ddp.register_comm_hook(None, hook)
        train(ddp, rank, 3)

    return run


def built_in_hook(rank: int) -> None:
    ddp = wrapped(bucket_cap_mb=CAP)
    ddp._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
    train(ddp, rank, 3)


def changed_behind(rank: int) -> None:
    """One bit of one weight, on one rank, after the step before; later a NaN on all."""
    ddp = wrapped()
    train(ddp, rank, CHANGED_STEP)
    with torch.no_grad():
        if rank == CHANGED_RANK:
            ddp.module.head.weight.view(torch.int32)[3, 5] ^= 1
    train(ddp, rank, 2)
    with torch.no_grad():
        ddp.module.side.bias[:2] = torch.tensor([float("nan"), float("inf")])
    train(ddp, rank, 1)


# --- plans and parameters ------------------------------------------------------------------------


def unused_here(rank: int) -> None:
    """Ranks 0 and 1 leave ``side`` out, in their second step all ranks do, in the third none."""
    ddp = wrapped(find_unused_parameters=True, bucket_cap_mb=CAP)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    for number in range(4):
        optimizer.zero_grad()
        if number == 3:
            with ddp.no_sync():
                backward(ddp, rank, number)
        backward(ddp, rank, number, skip=(rank < 2, True, False, True)[number])
        optimizer.step()


class Backwards(nn.Module):
    """Layers that are registered in the opposite of the order in which they run."""

    def __init__(self) -> None:
        super().__init__()
        for number in (3, 2, 1, 0):
            self.add_module(f"layer{number}", nn.Linear(64, 64))

    def forward(self, x: torch.Tensor, **_: Any) -> Any:
        x = x.flatten(1)[:, :64]
        for number in range(4):
            x = torch.relu(getattr(self, f"layer{number}")(x))
        return {"out": [x]}


def wrong_order(rank: int) -> None:
    """With ``find_unused_parameters`` buckets are not rebuilt: each waits for the one before it."""
    train(wrapped(Backwards(), find_unused_parameters=True, bucket_cap_mb=0.01), rank, 2)


def unused_in_static(rank: int) -> None:
    train(wrapped(static_graph=True, bucket_cap_mb=CAP), rank, 4, skip=True)


def plain(**arguments: Any) -> Callable[[int], None]:
    return lambda rank: train(wrapped(**arguments), rank, 4)


class Sparse(nn.Module):
    """A table with sparse gradients, a frozen layer, and one to train."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 8, sparse=True)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, **_: Any) -> Any:
        words = (x.flatten(1)[:, :3].abs() * 10).long() % 20
        return {"out": [self.head(self.frozen(self.table(words).mean(1)))]}


def sparse(rank: int) -> None:
    train(wrapped(Sparse()), rank, 3)


class TwoDtypes(nn.Module):
    """1 MiB and more in float32, and as much in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow = nn.ModuleList(nn.Linear(420, 420) for _ in range(3))
        self.wide = nn.ModuleList(nn.Linear(300, 300, dtype=torch.float64) for _ in range(3))
        self.into = nn.Linear(420, 300)

    def forward(self, x: torch.Tensor, **_: Any) -> Any:
        x = x.flatten(1).repeat(1, 4)[:, :420]
        for layer in self.narrow:
            x = layer(x)
        x = self.into(x).double()
        for layer in self.wide:
            x = layer(x)
        return {"out": [x]}


def two_dtypes(rank: int) -> None:
    train(wrapped(TwoDtypes()), rank, 3)


def by_default(rank: int) -> None:
    """Two MiB in two tensors, so that the small first bucket can be seen."""
    train(wrapped(Net(width=60_000)), rank, 3)


def unsearched(rank: int) -> None:
    train(wrapped(Net(width=60_000), find_unused_parameters=True), rank, 2)


def convnet(rank: int) -> None:
    from ddpviz.engines.workloads.convnet import build

    torch.manual_seed(0)
    model, batch, loss = build(rank, RANKS, torch.device("cpu"))
    ddp = DDP(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    for number in range(3):
        optimizer.zero_grad()
        given = batch(number)
        loss(ddp(given[0]), given).backward()
        optimizer.step()


CASES: dict[str, Callable[[int], None]] = {
    "around no_sync": around_no_sync,
    "around eval": around_eval,
    "switched off": switched_off,
    "without buffers": without_buffers,
    "drifting": drifting,
    "reassigned": reassigned,
    "hooked after": hooked(Location.POST_FORWARD),
    "hooked before": hooked(Location.PRE_FORWARD),
    "hooked on the group": hooked_on_the_group,
    "repaired": repaired,
    "stages": stages,
    "put off": put_off,
    "joined": joined,
    "joined by the rest": joined_by_rest,
    "hook averages": with_hook(hook_averages),
    "hook forgets": with_hook(hook_forgets),
    "hook with views": with_hook(hook_averages, gradient_as_bucket_view=True),
    "built-in hook": built_in_hook,
    "changed behind": changed_behind,
    "unused here": unused_here,
    "wrong order": wrong_order,
    "unused in static": unused_in_static,
    "explicit cap": plain(bucket_cap_mb=CAP),
    "list of caps": plain(bucket_cap_mb_list=[0.001, 0.004]),
    "without init sync": plain(init_sync=False, bucket_cap_mb=CAP),
    "views": plain(gradient_as_bucket_view=True, bucket_cap_mb=CAP),
    "sparse": sparse,
    "two dtypes": two_dtypes,
    "by default": by_default,
    "find_unused by default": unsearched,
    "convnet": convnet,
}
if "batched_grad_copy" in inspect.signature(DDP).parameters:  # not in every torch
    CASES["batched copy"] = plain(batched_grad_copy=True, bucket_cap_mb=CAP)


def record(rank: int, world_size: int) -> dict[str, list[bytes]]:
    """Every case recorded with fingerprints in each step, as batches."""
    from ddpviz.probe import Recorder

    found = {}
    for name, case in CASES.items():
        batches: list[bytes] = []
        recorder = Recorder(
            sinks=[lambda batch, to=batches: to.append(batch.to_bytes())],  # type: ignore[misc]
            fingerprints=1,
        )
        recorder.install()
        case(rank)
        recorder.close()
        found[name] = batches
    return found


@functools.cache
def recorded() -> dict[str, Recording]:
    """The recording of each of :data:`CASES`; the ranks run once for all tests of a process."""
    return recordings(run_ranks(record, RANKS))


def recordings(outcomes: list[dict[str, list[bytes]]]) -> dict[str, Recording]:
    from ddpviz.events import Batch

    found = {}
    for name in CASES:
        recording = found[name] = Recording()
        for outcome in outcomes:
            for batch in outcome[name]:
                recording.append(Batch.from_bytes(batch))
    return found
