"""Where a step ends: at the optimizer's end, and where there is none."""

from __future__ import annotations

import gc
import os
import signal
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

import ddpviz
from ddpviz.events import Cause, Failure, Flag, Kind
from tests.ranks import run_ranks


def train(ddp: Any, optimizer: Any, steps: int) -> None:
    for _ in range(steps):
        ddp(torch.ones(2, 8)).sum().backward()
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()


def wrapped() -> Any:
    return DDP(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2)))


def sharded(rank: int, out: str) -> None:
    ddp = wrapped()
    optimizer = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.SGD, lr=0.1)
    with ddpviz.attach(ddp, f"{out}/sharded"):
        train(ddp, optimizer, 3)


def without_optimizer(rank: int, out: str) -> None:
    ddp = wrapped()
    with ddpviz.attach(ddp, f"{out}/without"):
        train(ddp, None, 3)


def raising(rank: int, out: str) -> None:
    ddp = wrapped()
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    try:
        with ddpviz.attach(ddp, f"{out}/raising"):
            train(ddp, optimizer, 2)
            ddp(torch.ones(2, 8))
            raise KeyError("k")
    except KeyError:
        pass


def raising_in_the_step(rank: int, out: str) -> None:
    """The optimizer raises once, and is called again."""
    ddp = wrapped()
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    with ddpviz.attach(ddp, f"{out}/again"):
        ddp(torch.ones(2, 8)).sum().backward()
        try:
            optimizer.step(lambda: 1 / 0)
        except ZeroDivisionError:
            optimizer.step()
        train(ddp, optimizer, 1)


def exiting(rank: int, out: str) -> None:
    ddp = wrapped()
    try:
        with ddpviz.attach(ddp, f"{out}/exiting"):
            raise SystemExit(0)
    except SystemExit:
        pass


def detached(rank: int, out: str) -> bool:
    """Whether nothing of a closed recording is kept alive by the model."""
    ddp = wrapped()
    attachment = ddpviz.attach(ddp)
    train(ddp, None, 1)
    attachment.close()
    recording, recorder = weakref.ref(attachment.recording), weakref.ref(attachment.recorder)
    del attachment
    gc.collect()
    return recording() is None and recorder() is None


def relaunched(rank: int, out: str) -> None:
    """Twice the same directory, the second time as torchrun does it after a failure."""
    ddp = wrapped()
    for restarts in ("0", "1"):
        os.environ["TORCHELASTIC_RESTART_COUNT"] = restarts
        with ddpviz.attach(ddp, f"{out}/relaunched"):
            train(ddp, None, 2)
    del os.environ["TORCHELASTIC_RESTART_COUNT"]


def in_a_signal(rank: int, out: str) -> None:
    """A preemption's handler that talks to the other ranks."""
    ddp = wrapped()
    with ddpviz.attach(ddp, f"{out}/signal") as attachment:
        recorder = attachment.recorder
        signal.signal(signal.SIGUSR1, lambda *_: recorder.write(Kind.STALL, 1, 1))
        for _ in range(2_000):
            signal.raise_signal(signal.SIGUSR1)
            recorder.write(Kind.STALL, 2, 2)


def runs(rank: int, world_size: int, out: str) -> bool:
    for one in (
        sharded,
        without_optimizer,
        raising,
        raising_in_the_step,
        exiting,
        relaunched,
        in_a_signal,
    ):
        one(rank, out)
    return detached(rank, out)


def of(recording: Any, kind: Kind) -> np.ndarray:
    return recording.records(kinds=kind, ranks=0)


def test_a_step_ends_where_its_optimizer_does(tmp_path: Path) -> None:
    assert run_ranks(runs, 2, str(tmp_path)) == [True, True]

    # The sharded one steps another, then sends parameters: all of it is the step's.
    found = ddpviz.load(tmp_path / "sharded")
    steps, optimizers = of(found, Kind.STEP), of(found, Kind.OPTIMIZER)
    assert optimizers["step"].tolist() == [0, 1, 2] == steps["step"].tolist()
    assert {found.label(0, id) for id in optimizers["label"]} == {"ZeroRedundancyOptimizer"}
    assert (steps["end_ns"] >= optimizers["end_ns"]).all()
    launched = of(found, Kind.COLLECTIVE_LAUNCHED)
    sent = launched[launched["cause"] != Cause.BUCKET]
    assert len(sent) >= 3 and set(sent["step"].tolist()) <= {0, 1, 2}

    # No optimizer: a step ends with its last gradients, and says that this is derived.
    found = ddpviz.load(tmp_path / "without")
    steps, backwards = of(found, Kind.STEP), of(found, Kind.BACKWARD)
    assert steps["step"].tolist() == [0, 1, 2]
    assert ((steps["flags"] & Flag.DERIVED) != 0).all()
    assert steps["end_ns"].tolist() == backwards["end_ns"].tolist()
    assert (steps["end_ns"][:-1] <= of(found, Kind.FORWARD)["begin_ns"][1:]).all()
    assert found.steps()["derived"].all()

    # A step that an exception cut has no end; one that its optimizer ended is not derived.
    found = ddpviz.load(tmp_path / "raising")
    assert of(found, Kind.STEP)["step"].tolist() == [0, 1]
    table = found.steps()
    assert table[table["step"] == 2]["step_ms"].isna().all()
    assert not table["derived"].any() and len(found.notes(Failure)) == 2

    found = ddpviz.load(tmp_path / "again")
    assert of(found, Kind.STEP)["step"].tolist() == [0, 1]
    assert of(found, Kind.OPTIMIZER)["step"].tolist() == [0, 1]

    assert ddpviz.load(tmp_path / "exiting").notes(Failure) == []
    assert of(ddpviz.load(tmp_path / "relaunched"), Kind.STEP)["step"].tolist() == [0, 1, 2, 3]
    assert len(of(ddpviz.load(tmp_path / "signal"), Kind.STALL)) == 4_000
