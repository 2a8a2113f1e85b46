"""Real runs of two ranks without a fault, most of them a near miss of one."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import post_localSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer

from ddpviz.engines.workloads import WORKLOADS
from tests.audit.faults import Normed, Table, Twice, gradients, image, local_state
from tests.audit.nets import Two, batch, sgd, train, wrap
from tests.audit.recorded import Runs
from tests.fidelity import scenarios


def unused_and_said_so(rank: int) -> None:
    """The second layer is left out now and then, with find_unused_parameters."""
    ddp = wrap(Two(), find_unused_parameters=True)
    for step in range(12):
        train(rank, ddp, 1, forward=lambda x, skip=step % 3 == 1: ddp(x, skip=skip), first=step)


def frozen_before(rank: int) -> None:
    model = Two()
    model.first.bias.requires_grad_(False)
    train(rank, wrap(model))


def accumulation(rank: int) -> None:
    """Two micro-batches in no_sync, the third reduces all."""
    ddp = wrap(Two())
    optimizer = sgd(ddp)
    for step in range(2):
        optimizer.zero_grad()
        with ddp.no_sync():
            for micro in range(2):
                ddp(batch(rank, 10 * step + micro)).square().mean().backward()
        ddp(batch(rank, 10 * step + 2)).square().mean().backward()
        optimizer.step()


def reduced_by_hand(rank: int) -> None:
    """All in no_sync, and one collective of the program's own."""
    ddp = wrap(Two())
    optimizer = sgd(ddp)

    def average(step: int) -> None:
        flat = torch.cat([parameter.grad.reshape(-1) for parameter in ddp.parameters()])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        parts = flat.split([parameter.numel() for parameter in ddp.parameters()])
        for parameter, part in zip(ddp.parameters(), parts, strict=True):
            parameter.grad.copy_(part.view_as(parameter))

    with ddp.no_sync():
        train(rank, ddp, 3, optimizer, before_step=average)


def grad_by_hand(rank: int) -> None:
    """autograd.grad, and an all-reduce of each gradient."""
    ddp = wrap(Two())
    optimizer = sgd(ddp)
    for step in range(3):
        gradients(rank, ddp, step)
        for parameter in ddp.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        optimizer.step()


def local_sgd_hooked(rank: int) -> None:
    """torch's own local SGD: replicas part between two averagings."""
    ddp = wrap(Two())
    ddp.register_comm_hook(local_state(2), post_localSGD_hook)
    averager = PeriodicModelAverager(period=3, warmup_steps=2)
    train(rank, ddp, 7, PostLocalSGDOptimizer(sgd(ddp), averager))


def frozen_critic(rank: int) -> None:
    """The critic is frozen while the generator learns through it: it needs no gradient then."""
    generator, critic = wrap(Two()), wrap(Two())
    of_generator, of_critic = sgd(generator), sgd(critic)
    for step in range(3):
        critic.requires_grad_(True)
        of_critic.zero_grad()
        critic(batch(rank, step)).square().mean().backward()
        of_critic.step()
        critic.requires_grad_(False)
        of_generator.zero_grad()
        critic(generator(batch(rank, step))).square().mean().backward()
        of_generator.step()


def adversarial(rank: int) -> None:
    """A batch is changed by its own gradient, through DDP, before each ordinary step."""
    ddp = wrap(Two())
    optimizer = sgd(ddp)
    for step in range(3):
        x = batch(rank, step).requires_grad_()
        (slope,) = torch.autograd.grad(ddp(x).square().mean(), x)
        optimizer.zero_grad()
        ddp(x.detach() + 0.01 * slope.sign()).square().mean().backward()
        optimizer.step()


def probed(rank: int) -> None:
    """Rank 0 alone trains a layer of its own beside each step."""
    ddp = wrap(Two())
    layer = nn.Linear(8, 2)
    own = sgd(layer)
    for step in range(4):
        train(rank, ddp, 1, first=step)
        if rank == 0:
            own.zero_grad()
            layer(ddp.module(batch(rank)).detach()).square().mean().backward()
            own.step()


def skipped_together(rank: int) -> None:
    """The optimizer steps in every second step, on both ranks."""
    ddp = wrap(Two())
    optimizer = sgd(ddp)
    for step in range(5):
        optimizer.zero_grad()
        ddp(batch(rank, step)).square().mean().backward()
        if step % 2:
            optimizer.step()


def stages(rank: int) -> None:
    """Each rank has another model in a process group of its own, as in a pipeline."""
    groups = [dist.new_group([one]) for one in range(dist.get_world_size())]
    torch.manual_seed(rank)
    layers = [nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4 + rank)]
    train(rank, wrap(nn.Sequential(*layers[: 3 - 2 * rank]), process_group=groups[rank]))


def looked_into(rank: int) -> None:
    """After training rank 0 alone runs a forward, with gradients and no backward."""
    ddp = wrap(Two())
    train(rank, ddp)
    if rank == 0:
        ddp(batch(rank))


def wrapped_later(rank: int) -> None:
    """After wrapping, a layer gets a shell around it: the same parameters by other names."""
    ddp = wrap(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)))
    optimizer = sgd(ddp)
    train(rank, ddp, 1, optimizer)
    ddp.module[0] = nn.Sequential(ddp.module[0])
    train(rank, ddp, 3, optimizer, first=1)


def averaged_weights(rank: int) -> None:
    """An average of the weights asks for the state_dict in every step."""
    ddp = wrap(Two())
    mean: dict[str, torch.Tensor] = {}

    def average(step: int) -> None:
        for name, value in ddp.module.state_dict().items():
            mean[name] = value.clone() if name not in mean else 0.9 * mean[name] + 0.1 * value

    train(rank, ddp, 4, before_step=average)


def two_losses(rank: int) -> None:
    """Added, and one backward."""
    ddp = wrap(Two())
    optimizer = sgd(ddp)
    for step in range(2):
        optimizer.zero_grad()
        output = ddp(batch(rank, step))
        (output.square().mean() + output.abs().mean()).backward()
        optimizer.step()


def two_halves(rank: int) -> None:
    """Two backwards of one forward, each through its own parameters: the second completes it."""

    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.left(x), self.right(x)

    ddp = wrap(Halves())
    optimizer = sgd(ddp)
    for step in range(3):
        optimizer.zero_grad()
        for output in ddp(batch(rank, step)):
            output.square().mean().backward()
        optimizer.step()


def adversaries(rank: int) -> None:
    """A critic gets gradients, not through DDP, when the generator learns; they are thrown away."""
    generator, critic = wrap(Two()), wrap(Two())
    of_generator, of_critic = sgd(generator), sgd(critic)
    for step in range(3):
        of_critic.zero_grad()
        critic(batch(rank, step)).square().mean().backward()
        of_critic.step()
        of_generator.zero_grad()
        critic.module(generator(batch(rank, step))).square().mean().backward()
        of_generator.step()


def evaluated_inside(rank: int) -> None:
    """Evaluation calls the wrapped module, without gradients, on rank 0 alone."""
    ddp = wrap(Normed())
    for step in range(3):
        train(rank, ddp, 1, first=step)
        if rank == 0:
            with torch.no_grad():
                ddp.module.eval()(batch(rank))
            ddp.module.train()


def changed_in_place(rank: int) -> None:
    """A weight is written anew, in place and alike on all ranks."""
    ddp = wrap(Two())
    train(rank, ddp, 1)
    ddp.module.second.weight.data.copy_(torch.eye(8))
    train(rank, ddp, 2)


def clipped(rank: int) -> None:
    """By the norm of the averages, which is the same everywhere."""
    ddp = wrap(Two())

    def clip(step: int) -> None:
        torch.nn.utils.clip_grad_norm_(ddp.parameters(), 0.01)

    train(rank, ddp, before_step=clip)


def summed_metric(rank: int) -> None:
    """An all-reduce of the user's own in every step."""
    train(rank, wrap(Two()), before_step=lambda step: dist.all_reduce(torch.ones(1)))


def averaging(state, bucket):  # type: ignore[no-untyped-def] # DDP refuses string annotations
    tensor = bucket.buffer().div_(dist.get_world_size())
    return dist.all_reduce(tensor, async_op=True).get_future().then(lambda done: done.value()[0])


def hooked(rank: int) -> None:
    ddp = wrap(Two(), bucket_cap_mb=0.0003)
    ddp.register_comm_hook(None, averaging)
    train(rank, ddp)


def hooked_views(rank: int) -> None:
    ddp = wrap(nn.Conv2d(64, 8, 3).to(memory_format=torch.channels_last), bucket_cap_mb=0.001)
    ddp.register_comm_hook(None, averaging)
    train(rank, ddp, make=image)


def half_precision(rank: int) -> None:
    ddp = wrap(Two())
    ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    train(rank, ddp)


def low_rank(rank: int) -> None:
    """PowerSGD hands back something near the mean, on purpose."""
    ddp = wrap(Two(32))
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    train(rank, ddp, 8, make=lambda rank, step: batch(rank, step, 32))


def same_seed(rank: int) -> None:
    """Nothing is sent at first, and nothing need be."""
    train(rank, wrap(Two(), init_sync=False))


def checkpointed(rank: int) -> None:
    train(rank, wrap(Twice(reentrant=False)))


def static_graph(rank: int) -> None:
    train(rank, wrap(Two(), static_graph=True), 4)


def searched_briefly(rank: int) -> None:
    train(rank, wrap(Two(), find_unused_parameters=True), 4)


def layout_first(rank: int) -> None:
    """The memory format is changed before wrapping; and a 1 × 1 kernel, whose strides say nothing,
    after it."""
    model = nn.Conv2d(64, 128, 3).to(memory_format=torch.channels_last)
    train(rank, wrap(model), 4, make=image)
    ddp = wrap(nn.Conv2d(64, 2048, 1))
    train(rank, ddp, 2, make=image)
    ddp.module.to(memory_format=torch.channels_last)
    train(rank, ddp, 2, make=image)


def drifting_buffers(rank: int) -> None:
    train(rank, wrap(Normed()), 4)


def no_buffer_sync(rank: int) -> None:
    train(rank, wrap(Normed(), broadcast_buffers=False), 4)


def small_table(rank: int) -> None:
    train(rank, wrap(Table(10)), 6)


def saved_everywhere(rank: int) -> None:
    """All ranks are asked for their state; rank 0's is saved."""
    ddp = wrap(Normed())
    train(rank, ddp, 2)
    ddp.module.state_dict()


def saved_after_evaluation(rank: int) -> None:
    """A forward without gradients made the buffers equal before rank 1 was asked."""
    ddp = wrap(Normed())
    train(rank, ddp, 2)
    with torch.no_grad():
        ddp(batch(rank))
    if rank == 1:
        ddp.state_dict()


def uneven(rank: int) -> None:
    """Rank 1 has two steps more, in Join."""
    ddp = wrap(Two())
    with Join([ddp]):
        train(rank, ddp, 3 + 2 * rank)


def scaled_loss(rank: int) -> None:
    """An infinite gradient is skipped, as a gradient scaler does."""
    ddp = wrap(Two())
    optimizer = sgd(ddp)
    for step in range(3):
        optimizer.zero_grad()
        scale = float("inf") if step == 1 else 1.0
        (ddp(batch(rank, step)).square().mean() * scale).backward()
        if all(torch.isfinite(parameter.grad).all() for parameter in ddp.parameters()):
            optimizer.step()


def of_mode(mode: str, rank: int) -> None:
    """A mode of the scenarios; with more steps than a needless search would take to be told."""
    scenarios.train(mode, rank, scenarios.build(mode), 6)


def of_workload(name: str, arguments: dict[str, Any], rank: int) -> None:
    """A built-in workload under a knob."""
    build = importlib.import_module(WORKLOADS[name]).build
    model, batch, loss = build(rank, 2, torch.device("cpu"), **_SIZES[name])
    ddp = wrap(model, **arguments)
    optimizer = sgd(ddp, 0.01)
    for step in range(4):
        optimizer.zero_grad()
        inputs = batch(step)
        loss(ddp(inputs[0]), inputs).backward()
        optimizer.step()


_SIZES: dict[str, dict[str, int]] = {
    "mlp": {},
    "convnet": {},
    "resnet": {"image_size": 32, "batch_size": 2},
    "gpt": {"layers": 2, "width": 64, "vocabulary": 128},
}
_KNOBS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "small buckets": {"bucket_cap_mb": 0.05},
    "views": {"gradient_as_bucket_view": True},
    "static": {"static_graph": True},
    "search": {"find_unused_parameters": True},
    "no buffers": {"broadcast_buffers": False},
}
#: Scenarios that other tests train, and the built-in workloads under the main knobs.
MODES: Runs = {f"mode {mode}": functools.partial(of_mode, mode) for mode in scenarios.MODES} | {
    f"{name}, {knob}": functools.partial(of_workload, name, arguments)
    for name in _SIZES
    for knob, arguments in _KNOBS.items()
}

HEALTHY: Runs = {
    one.__name__: one
    for one in (
        unused_and_said_so,
        frozen_before,
        accumulation,
        reduced_by_hand,
        grad_by_hand,
        local_sgd_hooked,
        frozen_critic,
        adversarial,
        probed,
        skipped_together,
        stages,
        looked_into,
        wrapped_later,
        averaged_weights,
        two_losses,
        two_halves,
        adversaries,
        evaluated_inside,
        changed_in_place,
        clipped,
        summed_metric,
        hooked,
        hooked_views,
        half_precision,
        low_rank,
        same_seed,
        checkpointed,
        static_graph,
        searched_briefly,
        layout_first,
        drifting_buffers,
        no_buffer_sync,
        small_table,
        saved_everywhere,
        saved_after_evaluation,
        uneven,
        scaled_loss,
    )
}
