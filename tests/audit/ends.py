"""Real runs that end badly: ranks with other numbers of steps, a constructor that crashes."""

from __future__ import annotations

import contextlib
import datetime
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tests.audit.nets import Two, batch, sgd, train, wrap
from tests.audit.recorded import Runs
from tests.ranks import run_ranks


def step_counts(rank: int) -> None:
    """Rank 0 has a fourth step, in which it waits for rank 1 until its group's time is over."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=2))
    ddp = wrap(Two(), process_group=group)
    optimizer = sgd(ddp)
    train(rank, ddp, 3, optimizer)
    if rank == 0:
        with contextlib.suppress(RuntimeError):
            train(rank, ddp, 1, optimizer)


def skipped_backward(rank: int) -> None:
    """Rank 1 leaves out the backward of step 2; at the end rank 0 waits for another one of it."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=2))
    ddp = wrap(Two(), process_group=group)
    optimizer = sgd(ddp)
    for step in range(5):
        optimizer.zero_grad()
        loss = ddp(batch(rank, step)).square().mean()
        if step == 2 and rank == 1:
            continue
        with contextlib.suppress(RuntimeError):
            loss.backward()
            optimizer.step()


def unused_on_one(rank: int) -> None:
    """Rank 1 leaves the second layer out of step 2; rank 0 waits for its bucket till its time is
    over."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=2))
    ddp = wrap(Two(), process_group=group)
    optimizer = sgd(ddp)
    train(rank, ddp, 2, optimizer)
    optimizer.zero_grad()
    with contextlib.suppress(RuntimeError):
        ddp(batch(rank), skip=rank == 1).square().mean().backward()
        optimizer.step()


def ignored_on_one(rank: int) -> None:
    """Rank 1 tells DDP to leave a parameter out."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=2))
    model = Two()
    if rank == 1:
        ignored = ["second.bias"]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ignored)
    with contextlib.suppress(RuntimeError):
        wrap(model, process_group=group)


def other_dtype(rank: int) -> None:
    """Rank 1's second layer is of another dtype; nothing is sent at construction."""
    model = Two()
    if rank == 1:
        model.second.to(torch.float64)
    wrap(model, init_sync=False)


def other_shapes(rank: int) -> None:
    """Rank 1's last layer is wider: it is told in DDP's constructor, where rank 0 waits."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=2))
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 4 + rank))
    with contextlib.suppress(RuntimeError):
        wrap(model, process_group=group)


def other_buffers(rank: int) -> None:
    """Rank 1 has a buffer more; gloo sends what is too short without a word."""
    model = Two()
    model.register_buffer("shared", torch.zeros(7))
    if rank == 1:
        model.register_buffer("extra", torch.zeros(7))
    train(rank, wrap(model), 2)


ENDS: Runs = {
    one.__name__: one
    for one in (
        step_counts,
        skipped_backward,
        unused_on_one,
        ignored_on_one,
        other_dtype,
        other_shapes,
        other_buffers,
    )
}


def with_debug(rank: int, world_size: int, folder: str) -> None:
    """Recorded to files under the environment that the ranks inherit; DDP may crash."""
    from ddpviz.probe import Recorder
    from ddpviz.recording import RankWriter, ring_path

    out = Path(folder)
    writer = RankWriter(out, rank)
    recorder = Recorder(sinks=[writer], ring_path=ring_path(out, rank))
    recorder.install()
    try:
        train(rank, wrap(Two()), 1)
    finally:
        recorder.close()


def debug_ranks(folder: str) -> None:
    """Of a process that has the environment: its ranks come from a server that it starts."""
    run_ranks(with_debug, 2, folder)
