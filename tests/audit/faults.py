"""Real runs of two ranks, each with one fault. All can go on in the same processes."""

from __future__ import annotations

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
    post_localSGD_hook,
)
from torch.utils.checkpoint import checkpoint

from tests.audit.nets import Two, batch, sgd, train, wrap
from tests.audit.recorded import Runs


def unused_layer(rank: int) -> None:
    """Both leave the second layer out of step 1, and get an error in the forward after."""
    ddp = wrap(Two())
    train(rank, ddp, 1)
    optimizer = sgd(ddp)
    optimizer.zero_grad()
    ddp(batch(rank), skip=True).square().mean().backward()
    optimizer.step()
    with contextlib.suppress(RuntimeError):
        ddp(batch(rank))


def frozen_later(rank: int) -> None:
    ddp = wrap(Two())
    train(rank, ddp, 1)
    ddp.module.first.bias.requires_grad_(False)
    train(rank, ddp, 1)


def second_backward(rank: int) -> None:
    """Step 1 has two forwards and then two backwards."""
    ddp = wrap(Two())
    optimizer = sgd(ddp)
    train(rank, ddp, 1, optimizer)
    optimizer.zero_grad()
    losses = [ddp(batch(rank, step)).square().mean() for step in (1, 2)]
    for loss in losses:
        loss.backward()
    optimizer.step()
    train(rank, ddp, 1, optimizer)


def second_loss(rank: int) -> None:
    """Two backwards through one forward."""
    ddp = wrap(Two())
    optimizer = sgd(ddp)
    for step in range(2):
        optimizer.zero_grad()
        output = ddp(batch(rank, step))
        output.square().mean().backward(retain_graph=True)
        output.abs().mean().backward()
        optimizer.step()


def bypassed(rank: int) -> None:
    """From step 2 on the wrapped module is called itself."""
    ddp = wrap(Two())
    train(rank, ddp, 2)
    train(rank, ddp, 2, forward=ddp.module)


def no_sync_step(rank: int) -> None:
    """Step 1 is in no_sync as a whole, and the optimizer steps."""
    ddp = wrap(Two())
    optimizer = sgd(ddp)
    train(rank, ddp, 1, optimizer)
    with ddp.no_sync():
        train(rank, ddp, 1, optimizer)
    train(rank, ddp, 1, optimizer)


def replaced(rank: int) -> None:
    """After step 0 a weight is another Parameter."""
    ddp = wrap(Two())
    train(rank, ddp, 1)
    ddp.module.second.weight = nn.Parameter(ddp.module.second.weight.detach().clone())
    # The Reducer waits for the old one, so it has to be in the graph.
    keep = next(p for n, p in zip(range(9), ddp._module_parameters, strict=False) if n == 2)
    train(rank, ddp, 2, forward=lambda x: ddp(x) + 0 * keep.sum())


def replaced_and_waited_for(rank: int) -> None:
    """As above, and nothing keeps the old one in the graph: step 1 reduces nothing."""
    ddp = wrap(Two())
    train(rank, ddp, 1)
    ddp.module.second.weight = nn.Parameter(ddp.module.second.weight.detach().clone())
    with contextlib.suppress(RuntimeError):
        train(rank, ddp, 2, first=1)


def replaced_by_two(rank: int) -> None:
    """After step 0 a layer becomes two."""
    ddp = wrap(Two())
    train(rank, ddp, 1)
    ddp.module.second = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    with contextlib.suppress(RuntimeError):
        train(rank, ddp, 2, first=1)


def unhooked(rank: int) -> None:
    """A frozen bias is made trainable after wrapping."""
    model = Two()
    model.second.bias.requires_grad_(False)
    ddp = wrap(model)
    model.second.bias.requires_grad_(True)
    train(rank, ddp, 2)


def local_hook(state, bucket):  # type: ignore[no-untyped-def] # DDP refuses string annotations
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def summing_hook(state, bucket):  # type: ignore[no-untyped-def]
    future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return future.then(lambda done: done.value()[0])


def twice_hook(state, bucket):  # type: ignore[no-untyped-def]
    world = dist.get_world_size()
    future = dist.all_reduce(bucket.buffer().div_(world), async_op=True).get_future()
    return future.then(lambda done: done.value()[0].div_(world))


def constant_hook(state, bucket):  # type: ignore[no-untyped-def]
    generator = torch.Generator().manual_seed(5)
    future = torch.futures.Future()
    future.set_result(torch.randn(bucket.buffer().shape, generator=generator))
    return future


def _hooked(hook, steps=3):  # type: ignore[no-untyped-def]
    def run(rank: int) -> None:
        ddp = wrap(Two(), bucket_cap_mb=0.0003)
        ddp.register_comm_hook(None, hook)
        train(rank, ddp, steps)

    return run


def hook_local(rank: int) -> None:
    _hooked(local_hook)(rank)


def hook_sums(rank: int) -> None:
    _hooked(summing_hook)(rank)


def hook_twice(rank: int) -> None:
    _hooked(twice_hook)(rank)


def hook_constant(rank: int) -> None:
    _hooked(constant_hook, 6)(rank)


def changed_after(rank: int) -> None:
    """Each rank scales its gradients by a number of its own, in step 1."""
    ddp = wrap(Two())

    def scale(step: int) -> None:
        if step == 1:
            for parameter in ddp.parameters():
                parameter.grad.mul_(1.0 + rank)

    train(rank, ddp, 2, before_step=scale)


def initial_state(rank: int) -> None:
    torch.manual_seed(rank)
    train(rank, wrap(Two(), init_sync=False), 2)


def learning_rate(rank: int) -> None:
    ddp = wrap(Two())
    train(rank, ddp, 1, sgd(ddp, 0.1))
    train(rank, ddp, 2, sgd(ddp, 0.1 + rank))


def parted_for_a_while(rank: int) -> None:
    """Rank 1 changes a weight after step 1; after step 3 all take rank 0's."""
    ddp = wrap(Two())
    optimizer = sgd(ddp)
    for step in range(6):
        train(rank, ddp, 1, optimizer)
        with torch.no_grad():
            if step == 1 and rank == 1:
                ddp.module.first.weight.add_(0.01)
            if step == 3:
                for parameter in ddp.parameters():
                    dist.broadcast(parameter, 0)


def swapped(rank: int) -> None:
    """Step 2: rank 0 sums a tensor of its own before its backward, rank 1 after it. It is as large
    as the bucket, so gloo adds the one to the other without a word."""
    group = dist.new_group()
    ddp = wrap(nn.Linear(8, 4), process_group=group)
    optimizer = sgd(ddp)
    train(rank, ddp, 2, optimizer)
    own = torch.ones(8 * 4 + 4)
    optimizer.zero_grad()
    loss = ddp(batch(rank, 2)).square().mean()
    if rank == 0:
        dist.all_reduce(own, group=group)
    loss.backward()
    if rank == 1:
        dist.all_reduce(own, group=group)
    optimizer.step()


def rounded(rank: int) -> None:
    """Each rank moves its weights by its own gradients, and back by the same: that rounds."""
    ddp = wrap(Two(32))
    optimizer = sgd(ddp)
    for step in range(3):
        optimizer.zero_grad()
        with ddp.no_sync():
            ddp(batch(rank, step, 32)).square().mean().backward()
        moves = [0.1 * parameter.grad for parameter in ddp.parameters()]
        with torch.no_grad():
            for parameter, move in zip(ddp.parameters(), moves, strict=True):
                parameter.add_(move)
        optimizer.zero_grad()
        ddp(batch(rank, step, 32)).square().mean().backward()
        with torch.no_grad():
            for parameter, move in zip(ddp.parameters(), moves, strict=True):
                parameter.sub_(move)
        optimizer.step()


def local_sgd(rank: int) -> None:
    """All in no_sync, and parameters averaged after steps 1 and 3: right, if it is meant."""
    ddp = wrap(Two())
    optimizer = sgd(ddp)
    for step in range(0, 4, 2):
        with ddp.no_sync():
            train(rank, ddp, 2, optimizer, first=step)
        for parameter in ddp.parameters():
            dist.all_reduce(parameter.data)
            parameter.data /= dist.get_world_size()


def never_averaged(rank: int) -> None:
    """torch's hook of local SGD from step 2 on, and nothing that averages parameters."""
    ddp = wrap(Two())
    ddp.register_comm_hook(local_state(2), post_localSGD_hook)
    train(rank, ddp, 4)


def local_state(start: int) -> PostLocalSGDState:
    groups = [dist.new_group([one]) for one in range(dist.get_world_size())]
    return PostLocalSGDState(None, groups[dist.get_rank()], start_localSGD_iter=start)


def inside_hook(group, bucket):  # type: ignore[no-untyped-def]
    future = dist.all_reduce(bucket.buffer(), group=group, async_op=True).get_future()
    return future.then(lambda done: done.value()[0])


def hook_inside(rank: int) -> None:
    """A hook that averages in groups of one rank each, and nothing that averages parameters."""
    groups = [dist.new_group([one]) for one in range(dist.get_world_size())]
    ddp = wrap(Two(), bucket_cap_mb=0.0003)
    ddp.register_comm_hook(groups[rank], inside_hook)
    train(rank, ddp, 3)


def autograd_grad(rank: int) -> None:
    """Gradients of torch.autograd.grad, which DDP does not see."""
    ddp = wrap(Two())
    optimizer = sgd(ddp)
    for step in range(3):
        gradients(rank, ddp, step)
        optimizer.step()


def gradients(rank: int, ddp: nn.Module, step: int) -> None:
    """Each parameter's, by autograd.grad."""
    parameters = list(ddp.parameters())
    found = torch.autograd.grad(ddp(batch(rank, step)).square().mean(), parameters)
    for parameter, gradient in zip(parameters, found, strict=True):
        parameter.grad = gradient


def step_on_one(rank: int) -> None:
    """From step 1 on rank 0 alone steps."""
    ddp = wrap(Two())
    optimizer = sgd(ddp)
    train(rank, ddp, 1, optimizer)
    for step in range(1, 4):
        optimizer.zero_grad()
        ddp(batch(rank, step)).square().mean().backward()
        if rank == 0:
            optimizer.step()


def second_optimizer(rank: int) -> None:
    """From step 2 on rank 1 steps one of two optimizers only."""
    ddp = wrap(Two())
    optimizers = [sgd(ddp.module.first), sgd(ddp.module.second)]
    for step in range(4):
        ddp.zero_grad()
        ddp(batch(rank, step)).square().mean().backward()
        optimizers[0].step()
        if rank == 0 or step < 2:
            optimizers[1].step()


def learning_rate_later(first: int, rank: int) -> None:
    """Seven steps; from the first one on the learning rate is the rank's own."""
    ddp = wrap(Two())
    train(rank, ddp, first)
    train(rank, ddp, 7 - first, sgd(ddp, 0.1 + rank), first=first)


def changed_later(first: int, rank: int) -> None:
    """Seven steps; from the first one on gradients are scaled by a number of the rank's own."""
    ddp = wrap(Two())

    def scale(step: int) -> None:
        for parameter in ddp.parameters():
            parameter.grad.mul_(1.0 + rank * (step >= first))

    train(rank, ddp, 7, before_step=scale)


class Ordered(nn.Module):
    """Two layers of one shape, registered in an order that depends on the rank."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        for name in ("first", "second") if rank == 0 else ("second", "first"):
            setattr(self, name, nn.Linear(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


def registration_order(rank: int) -> None:
    train(rank, wrap(Ordered(rank)), 2)


def frozen_on_one(rank: int) -> None:
    """DDP counts parameters, and raises on every rank."""
    model = Two()
    model.second.bias.requires_grad_(rank == 0)
    with contextlib.suppress(RuntimeError):
        wrap(model)


def other_configuration(rank: int) -> None:
    train(rank, wrap(Two(), gradient_as_bucket_view=rank == 1), 2)


class Twice(nn.Module):
    """A layer whose activations are checkpointed in two places."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.layer, self.reentrant = nn.Linear(8, 8), reentrant
        self.before = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x)
        for _ in range(2):
            x = checkpoint(self.layer, x, use_reentrant=self.reentrant)
        return x


def ready_twice(rank: int) -> None:
    ddp = wrap(Twice(reentrant=True))
    with contextlib.suppress(RuntimeError):
        ddp(batch(rank)).square().mean().backward()


def twice_in_one(rank: int) -> None:
    """As above, of a model that is all in the checkpoints: the first of them completes the bucket,
    and what the second adds is never reduced. Nothing is raised."""
    model = Twice(reentrant=True)
    model.before = nn.Identity()  # type: ignore[assignment]
    ddp = wrap(model)
    train(rank, ddp, 1, make=lambda rank, step: batch(rank, step).requires_grad_())


def static_graph(rank: int) -> None:
    """The second layer takes no part in step 2."""
    ddp = wrap(Two(), static_graph=True)
    optimizer = sgd(ddp)
    train(rank, ddp, 2, optimizer)
    optimizer.zero_grad()
    with contextlib.suppress(RuntimeError):
        ddp(batch(rank), skip=True).square().mean().backward()


def unused_search(rank: int) -> None:
    train(rank, wrap(Two(), find_unused_parameters=True), 12)


def image(rank: int, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * rank + step)
    return torch.randn(1, 64, 4, 4, generator=generator)


def layout(rank: int) -> None:
    """The memory format is changed after DDP has built its buckets for the last time."""
    ddp = wrap(nn.Conv2d(64, 128, 3))
    train(rank, ddp, 2, make=image)
    ddp.module.to(memory_format=torch.channels_last)
    train(rank, ddp, 2, make=image, first=2)


class Queue(nn.Module):
    """A buffer that every rank fills with its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("queue", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.queue.copy_(x.detach().mean(0))
        return self.layer(x)


def own_buffers(rank: int) -> None:
    train(rank, wrap(Queue()), 3)


class Table(nn.Module):
    """A large constant among the buffers."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("table", torch.ones(rows, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x + self.table[0])


def constant_buffers(rank: int) -> None:
    train(rank, wrap(Table(40_000)), 6)


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.layer(x))


def stale(rank: int) -> None:
    """Rank 1 alone is asked for its state after step 1."""
    ddp = wrap(Normed())
    train(rank, ddp, 2)
    if rank == 1:
        ddp.module.state_dict()


def not_finite(rank: int) -> None:
    """Step 1's batch of rank 1 has an infinity in it."""

    def make(rank: int, step: int) -> torch.Tensor:
        return batch(rank, step) * (float("inf") if rank == 1 and step == 1 else 1)

    train(rank, wrap(Two()), 3, make=make)


FAULTS: Runs = {
    one.__name__: one
    for one in (
        unused_layer,
        frozen_later,
        second_backward,
        second_loss,
        bypassed,
        no_sync_step,
        replaced,
        replaced_and_waited_for,
        replaced_by_two,
        unhooked,
        hook_local,
        hook_sums,
        hook_twice,
        hook_constant,
        changed_after,
        initial_state,
        learning_rate,
        parted_for_a_while,
        swapped,
        rounded,
        local_sgd,
        never_averaged,
        hook_inside,
        autograd_grad,
        step_on_one,
        second_optimizer,
        registration_order,
        frozen_on_one,
        other_configuration,
        ready_twice,
        twice_in_one,
        static_graph,
        unused_search,
        layout,
        own_buffers,
        constant_buffers,
        stale,
        not_finite,
    )
}


def changed_on_the_last(rank: int) -> None:
    ddp = wrap(Two())

    def scale(step: int) -> None:
        ddp.module.first.bias.grad.mul_(2.0 if rank == 2 else 1.0)

    train(rank, ddp, 2, before_step=scale)


def unsent_on_the_middle(rank: int) -> None:
    torch.manual_seed(int(rank == 1))
    train(rank, wrap(Two(), init_sync=False), 2)


def registered_on_the_last(rank: int) -> None:
    train(rank, wrap(Ordered(int(rank == 2))), 2)


#: Of three ranks.
OF_THREE: Runs = {
    one.__name__: one for one in (changed_on_the_last, unsent_on_the_middle, registered_on_the_last)
}
