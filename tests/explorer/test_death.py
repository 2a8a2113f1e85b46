"""Ranks that were killed leave what they had recorded: it stays drawn, and who died is said."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ddpviz import Session
from ddpviz.explorer import registry
from ddpviz.views.live_views import VIEWS
from ddpviz.views.selector import selectable
from tests.waiting import until

WIDTH_PX = 1000


def stops(rank: int, world_size: int, device: Any, before: int = 6) -> Any:
    """Ranks train, then load a batch for ever: nothing of that step is recorded."""
    import torch

    torch.manual_seed(0)

    def batch(step: int) -> Any:
        if step == before:
            time.sleep(3600)
        return torch.ones(2, 8)

    return torch.nn.Linear(8, 4), batch, lambda output, batch: output.sum()


@pytest.fixture(scope="module")
def killed() -> Iterator[Session]:
    """All ranks were killed before anything of step 6 was recorded; the explorer looked on."""
    with Session(engines=2) as session:
        session.load(stops)
        subject = registry.announce(session)
        session.start()
        until(lambda: subject.follower.newest_complete == 5, 60)
        before = subject.pictures(list(VIEWS), None, WIDTH_PX)
        assert "SIGKILL" not in before["timeline"][1].title
        for pid in session.pids.values():
            os.kill(pid, signal.SIGKILL)
        until(lambda: session.status().status == "failed", 60)
        yield session


def test_what_was_recorded_stays_drawn_and_says_who_died(killed: Session) -> None:
    subject = registry.announce(killed)
    failure = killed.failure
    assert failure is not None and failure.step == 6
    found = {view: one for view, (_, one) in subject.pictures(list(VIEWS), None, WIDTH_PX).items()}
    timeline, plan = found["timeline"], found["plan"]
    assert timeline.step == 5 and not timeline.empty
    assert len(timeline.sources["spans"]["left"]) > 10
    who = f"rank {failure.rank} failed at the begin of step 6: its process was killed by SIGKILL"
    assert timeline.title == who
    assert plan.title.startswith("stops: plan 1 has 1 bucket") and not plan.empty
    assert not found["steps"].empty and not found["overlap"].empty
    state = subject.state()
    assert (state["status"], state["step"]) == ("failed", 5)
    assert state["reason"] == failure.summary and "SIGKILL" in state["reason"]
    assert {one["state"] for one in state["ranks"]} == {"dead"}


def test_a_step_before_the_failure_tells_nothing_of_it(killed: Session) -> None:
    subject = registry.announce(killed)
    for step in (2, 4):
        (_, picture) = subject.pictures(["timeline"], step, WIDTH_PX)["timeline"]
        assert picture.step == step and "failed" not in picture.title


def test_a_page_opens_at_the_step_that_the_failure_is_told_at(killed: Session) -> None:
    selected = selectable(killed.recording)
    assert selected.steps[-1] == 5
    assert "SIGKILL" in selected.drawn.plot.title.text
