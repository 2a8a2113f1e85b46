"""What is recorded of modules beside their steps: what they are called, when they were built."""

from __future__ import annotations

from typing import Any

import torch

from ddpviz.engines import Session
from ddpviz.events import Module
from ddpviz.export.tables import state_line

_OWN = """
import torch
own = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
own(torch.ones(1, 2)).sum().backward()
"""
#: Rank 0 has no data, so it is in no step at all.
_JOIN = """
from torch.distributed.algorithms.join import Join
with Join([session.ddp]):
    for _ in range(2 * rank):
        session.ddp(torch.ones(4, 8)).sum().backward()
"""


def pair(rank: int, world_size: int, device: torch.device) -> Any:
    """A workload whose model is of a class that says nothing."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8))
    return model, lambda step: torch.ones(4, 8), lambda output, batch: output.sum()


def called(session: Session) -> list[str]:
    """The names of the modules that rank 0 built, in their order."""
    return [note.name for note in session.recording.notes(Module, rank=0)]


def test_a_module_is_called_as_its_workload_also_in_a_pages_header(session: Session) -> None:
    known = len(called(session))
    session.load("convnet", image_size=8, batch_size=4).run(1)
    session.configure(bucket_cap_mb=1)
    session.load(pair).run(1)
    assert called(session)[known:] == ["convnet", "convnet", "pair"]
    assert "Sequential" not in state_line(session.recording).html
    # What a user wraps there has no other name than its class's.
    execution = session.execute(_OWN)
    assert execution.wait() is not False and not execution.errors
    assert called(session)[known:] == ["convnet", "convnet", "pair", "Linear"]


def test_what_join_sends_at_its_end_is_no_construction(session: Session) -> None:
    session.load(pair)
    before = session.recording.construction()
    assert (before["part"] == "reducer").any()
    execution = session.execute(_JOIN)
    execution.wait()
    assert not execution.errors
    sent = session.recording.collectives()
    after = session.recording.construction()
    assert len(sent) and after.equals(before)
