"""Real runs of two ranks whose module was wrapped, and more, before recording begins."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel as DDP

from ddpviz.events import Batch
from ddpviz.recording import Recording
from tests.audit.expected import Expected
from tests.audit.faults.hooks import local_hook, twice_hook
from tests.audit.healthy.hooks import averaging
from tests.audit.nets import Two, batch, sgd, train, wrap
from tests.ranks import run_ranks


@dataclasses.dataclass(frozen=True)
class Before:
    """``make``: of the rank, before recording begins; ``run``: afterwards."""

    make: Callable[[int], DDP]
    run: Callable[[int, DDP], None] = train


def _wrapped(change: Callable[[DDP], None] = lambda ddp: None, **arguments: Any) -> DDP:
    ddp = wrap(Two(), **arguments)
    change(ddp)
    return ddp


# --- comm hooks ----------------------------------------------------------------------------------


def waiting_hook(state, bucket):  # type: ignore[no-untyped-def] # DDP refuses string annotations
    """Reduces before it returns, behind a barrier that is not about any bucket."""
    dist.barrier()
    dist.all_reduce(bucket.buffer())
    future = torch.futures.Future()
    future.set_result(bucket.buffer().div_(dist.get_world_size()))
    return future


class Averaging:
    """An object that is called; asks for what it reduces in a method of its own."""

    def __init__(self) -> None:
        self.__name__ = self.__qualname__ = "Averaging"

    def __call__(self, state, bucket):  # type: ignore[no-untyped-def]
        return self._reduced(self._flat(bucket))

    def _flat(self, bucket):  # type: ignore[no-untyped-def]
        return torch.cat([gradient.reshape(-1) for gradient in bucket.gradients()])

    def _reduced(self, flat):  # type: ignore[no-untyped-def]
        future = dist.all_reduce(flat.div_(dist.get_world_size()), async_op=True).get_future()
        return future.then(lambda done: done.value()[0])


def hooked(
    rank: int, hook: Any, state: object = None, width: int = 8, cap_mb: float = 0.0003
) -> DDP:
    """In several buckets; the hook is older than the recording."""
    ddp = wrap(Two(width), bucket_cap_mb=cap_mb)
    ddp.register_comm_hook(state, hook)
    return ddp


def hooked_and_trained(rank: int) -> DDP:
    """Buckets are built for the last time before recording begins, too."""
    ddp = hooked(rank, averaging)
    train(rank, ddp, 2)
    return ddp


def low_rank(rank: int) -> DDP:
    """In one bucket: of several, it sends parts from other threads, in an order of each rank's."""
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    return hooked(rank, powerSGD_hook.powerSGD_hook, state, 32, 25)


def train_wide(rank: int, ddp: DDP) -> None:
    train(rank, ddp, 8, make=lambda rank, step: batch(rank, step, 32))


def hooked_in_another_recording(rank: int) -> DDP:
    """The hook was registered while another recorder followed the module."""
    from ddpviz.probe import Recorder

    recorder = Recorder().install()
    ddp = hooked(rank, averaging)
    train(rank, ddp, 1)
    recorder.close()
    return ddp


def beside_another(rank: int, ddp: DDP) -> None:
    """A module that is built later has its own hook, and both learn in one backward."""
    other = hooked(rank, averaging)
    optimizers = [sgd(ddp), sgd(other)]
    for step in range(3):
        for optimizer in optimizers:
            optimizer.zero_grad()
        other(ddp(batch(rank, step))).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()


def built_in(rank: int) -> DDP:
    ddp = wrap(Two())
    ddp._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
    return ddp


# --- parameters ----------------------------------------------------------------------------------


def new_head(ddp: DDP) -> None:
    """The second layer is another, with as many outputs as needed."""
    ddp.module.second = nn.Linear(8, 4)


def deeper_head(ddp: DDP) -> None:
    """The second layer becomes two."""
    ddp.module.second = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))


def in_a_shell(ddp: DDP) -> None:
    ddp.module.second = nn.Sequential(ddp.module.second)


def written(ddp: DDP) -> None:
    ddp.module.second.weight.data.copy_(torch.eye(8))


def freeze_first(ddp: DDP) -> None:
    ddp.module.first.bias.requires_grad_(False)


def frozen_first(rank: int, **arguments: Any) -> DDP:
    """The first layer is frozen while DDP wraps the model, and no longer."""
    model = Two()
    model.first.requires_grad_(False)
    ddp = wrap(model, **arguments)
    model.first.requires_grad_(True)
    return ddp


def frozen_again(rank: int, ddp: DDP) -> None:
    ddp.module.first.requires_grad_(False)
    train(rank, ddp)


def until_refused(rank: int, ddp: DDP) -> None:
    """DDP raises in the forward after a backward that was not reduced."""
    with contextlib.suppress(RuntimeError):
        train(rank, ddp)


def sparse_swapped(rank: int) -> DDP:
    """An embedding with sparse gradients is replaced; its buckets cannot be read."""

    class Sparse(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.EmbeddingBag(10, 8, sparse=True)
            self.layer = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(self.table(x))

    ddp = wrap(Sparse(), find_unused_parameters=True)
    ddp.module.layer = nn.Linear(8, 8)
    return ddp


def train_table(rank: int, ddp: DDP) -> None:
    def rows(rank: int, step: int) -> torch.Tensor:
        return torch.tensor([[rank, step, 2], [3, 4, 5]])

    train(rank, ddp, make=rows)


def _of(make: Callable[..., DDP], *arguments: Any, **named: Any) -> Callable[[int], DDP]:
    return functools.partial(_made, make, arguments, named)


def _made(make: Callable[..., DDP], arguments: Any, named: Any, rank: int) -> DDP:
    return make(rank, *arguments, **named)


def _changed(change: Callable[[DDP], None], **arguments: Any) -> Callable[[int], DDP]:
    return functools.partial(_change, change, arguments)


def _change(change: Callable[[DDP], None], arguments: Any, rank: int) -> DDP:
    return _wrapped(change, **arguments)


#: Without a fault.
WELL = {
    "averaging hook": Before(_of(hooked, averaging)),
    "hook that waits": Before(_of(hooked, waiting_hook)),
    "object as hook": Before(_of(hooked, Averaging())),
    "torch's all-reduce hook": Before(_of(hooked, default_hooks.allreduce_hook)),
    "torch's half precision hook": Before(_of(hooked, default_hooks.fp16_compress_hook)),
    "torch's low rank hook": Before(low_rank, train_wide),
    "hook of a trained module": Before(hooked_and_trained),
    "hook of another recording": Before(hooked_in_another_recording),
    "hook beside another": Before(_of(hooked, averaging), beside_another),
    "built-in hook": Before(built_in),
    "layer in a shell": Before(_changed(in_a_shell)),
    "written in place": Before(_changed(written)),
    "unfrozen and frozen again": Before(frozen_first, frozen_again),
    "frozen and searched for": Before(_changed(freeze_first, find_unused_parameters=True)),
}
_BOTH, _FIRST, _SECOND = (0, 1), ("first.weight", "first.bias"), ("second.weight", "second.bias")
FAULTY = {
    "hook that divides twice": Before(_of(hooked, twice_hook)),
    "hook that sends nothing": Before(_of(hooked, local_hook)),
    "replaced": Before(_changed(new_head), until_refused),
    "replaced and searched for": Before(_changed(new_head, find_unused_parameters=True)),
    "replaced, with sparse gradients": Before(sparse_swapped, train_table),
    "replaced by two": Before(_changed(deeper_head), until_refused),
    "unfrozen": Before(frozen_first),
    "unfrozen, with views": Before(_of(frozen_first, gradient_as_bucket_view=True)),
    "frozen": Before(_changed(freeze_first), until_refused),
}
BEFORE = {**WELL, **FAULTY}
#: With fingerprints.
EXPECTED = {
    "hook that divides twice": Expected("hook-not-mean", 0, _BOTH, ("twice_hook",), says="twice"),
    "hook that sends nothing": Expected(
        "hook-not-averaging", 0, _BOTH, (*_FIRST, *_SECOND), says="local_hook"
    ),
    "replaced": Expected(
        "parameter-replaced", 0, _BOTH, _SECOND, says="their gradients are never reduced, nor is"
    ),
    "replaced and searched for": Expected(
        "parameter-replaced", 0, _BOTH, _SECOND, says="are other"
    ),
    "replaced, with sparse gradients": Expected(
        "parameter-replaced", 0, _BOTH, ("layer.weight", "layer.bias")
    ),
    "replaced by two": Expected(
        "parameter-replaced", 0, _BOTH, ("second.parameter 2", "second.parameter 3")
    ),
    "unfrozen": Expected("parameter-not-hooked", 0, _BOTH, _FIRST, says="want a gradient"),
    "unfrozen, with views": Expected("parameter-not-hooked", 0, _BOTH, _FIRST),
    "frozen": Expected("bucket-incomplete", 0, _BOTH, ("first.bias",), says="was frozen"),
}


def recordings(fingerprints: int = 1, level: str = "default") -> dict[str, Recording]:
    """Of every run, as :func:`tests.audit.recorded.recordings`."""
    found = {name: Recording() for name in BEFORE}
    for of_rank in run_ranks(_all, 2, fingerprints, level):
        for name, batches in of_rank.items():
            for data in batches:
                found[name].append(Batch.from_bytes(data))
    return found


def _all(rank: int, world_size: int, fingerprints: int, level: str) -> dict[str, list[bytes]]:
    return {name: _record(one, rank, fingerprints, level) for name, one in BEFORE.items()}


def _record(one: Before, rank: int, fingerprints: int, level: str) -> list[bytes]:
    from ddpviz.probe import Recorder

    torch.manual_seed(0)
    ddp = one.make(rank)
    batches: list[Any] = []
    recorder = Recorder(
        sinks=[lambda batch: batches.append(batch.to_bytes())],
        fingerprints=fingerprints,
        level=level,
        flush_interval_s=30.0,
    ).install()
    recorder.adopt(ddp)
    try:
        one.run(rank, ddp)
    finally:
        recorder.close()
    return batches
