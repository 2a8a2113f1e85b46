"""A small convolutional network on a GPU, and what there is to compare of its training."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def build(device: torch.device, width: int = 64) -> DDP:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1)]
    for _ in range(4):
        layers += [nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)]
    return DDP(nn.Sequential(*layers).to(device), device_ids=[device], bucket_cap_mb=0.2)


def train(ddp: DDP, rank: int, device: torch.device, steps: int, first: int = 0) -> None:
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    for step in range(first, first + steps):
        torch.manual_seed(1000 * rank + step)
        batch = torch.randn(16, 3, 64, 64).to(device)
        optimizer.zero_grad()
        ddp(batch).square().mean().backward()
        optimizer.step()


def fingerprint(ddp: DDP) -> str:
    """One hash of every bit of parameters, buffers and gradients."""
    digest = hashlib.sha256()
    for tensor in [*ddp.parameters(), *ddp.buffers()]:
        digest.update(tensor.detach().cpu().numpy().tobytes())
        if tensor.grad is not None:
            digest.update(tensor.grad.cpu().numpy().tobytes())
    return digest.hexdigest()


def profiled(run: Any) -> Any:
    """torch.profiler around a call, host and device."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        run()
        torch.cuda.synchronize()
    return profiler
