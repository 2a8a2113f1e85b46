"""Real runs whose modules or tensors are unusual, and right."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from tests.audit.nets import (
    Two,
    batch,
    image,
    sgd,
    train,
    wrap,
)
from tests.audit.recorded import runs


def frozen_before(rank: int) -> None:
    model = Two()
    model.first.bias.requires_grad_(False)
    train(rank, wrap(model))


def stages(rank: int) -> None:
    """Each rank has another model in a process group of its own, as in a pipeline."""
    groups = [dist.new_group([one]) for one in range(dist.get_world_size())]
    torch.manual_seed(rank)
    layers = [nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4 + rank)]
    train(rank, wrap(nn.Sequential(*layers[: 3 - 2 * rank]), process_group=groups[rank]))


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


def changed_in_place(rank: int) -> None:
    """A weight is written anew, in place and alike on all ranks."""
    ddp = wrap(Two())
    train(rank, ddp, 1)
    ddp.module.second.weight.data.copy_(torch.eye(8))
    train(rank, ddp, 2)


def same_seed(rank: int) -> None:
    """Nothing is sent at first, and nothing need be."""
    train(rank, wrap(Two(), init_sync=False))


def layout_first(rank: int) -> None:
    """The memory format is changed before wrapping; and a 1 × 1 kernel, whose strides say nothing,
    after it."""
    model = nn.Conv2d(64, 128, 3).to(memory_format=torch.channels_last)
    train(rank, wrap(model), 4, make=image)
    ddp = wrap(nn.Conv2d(64, 2048, 1))
    train(rank, ddp, 2, make=image)
    ddp.module.to(memory_format=torch.channels_last)
    train(rank, ddp, 2, make=image)


def two_configurations(rank: int) -> None:
    """The model is wrapped a second time, with other arguments, on all ranks."""
    model = Two()
    train(rank, wrap(model), 2)
    train(rank, wrap(model, gradient_as_bucket_view=True, bucket_cap_mb=1), 2, first=2)


def shared(rank: int) -> None:
    """Two DDP modules around one encoder: the second backward reduces its gradients anew."""
    encoder = Two()
    one = wrap(nn.Sequential(encoder, nn.Linear(8, 4)))
    other = wrap(nn.Sequential(encoder, nn.Linear(8, 3)))
    optimizer = torch.optim.SGD({*one.parameters(), *other.parameters()}, lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        for ddp in (one, other):
            ddp(batch(rank, step)).square().mean().backward()
        optimizer.step()


HEALTHY = runs(
    shared,
    two_configurations,
    frozen_before,
    stages,
    wrapped_later,
    averaged_weights,
    changed_in_place,
    same_seed,
    layout_first,
)
