"""``run``: how many steps, how it ends, and which step an error names."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import nn

from ddpviz.engines import ConfigurationError, RankFailed, Session, SessionError
from ddpviz.events import Kind
from tests.waiting import until


def test_a_number_of_steps_that_is_none_is_refused(session: Session) -> None:
    session.load("mlp")
    for steps in (0, -1, "a"):
        with pytest.raises(ConfigurationError, match="whole number from 1 on"):
            session.run(steps)  # type: ignore[arg-type]


def test_stop_ends_a_run_of_another_thread(session: Session) -> None:
    session.load("mlp")
    before = session.recording.last_step
    runner = threading.Thread(target=session.run, args=(1_000_000,))
    runner.start()
    until(lambda: session.recording.last_step >= before + 2, seconds=30)
    assert session.status().status == "training"
    with pytest.raises(SessionError, match="call stop"):
        session.start()
    session.stop()
    assert session.status().status == "idle"
    runner.join(10)
    assert not runner.is_alive()


def failing(rank: int, world_size: int, device: torch.device, at: int = 3) -> Any:
    def batch(step: int) -> torch.Tensor:
        if step == at:
            raise ValueError("no such sample")
        return torch.ones(2, 4)

    return nn.Linear(4, 4), batch, lambda output, batch: output.sum()


@pytest.mark.parametrize("between", ["load", "cell"])
def test_an_error_names_the_step_that_the_user_counts(session: Session, between: str) -> None:
    session.load("mlp").run(2)
    session.load(failing, at=4).run(2)
    if between == "cell":
        # Steps of the user's own code, more of them on one rank.
        code = (
            "model = torch.nn.Linear(4, 4)\n"
            "ddp = torch.nn.parallel.DistributedDataParallel(model)\n"
            "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
            "for i in range(3):\n"
            "    ddp(torch.ones(2, 4)).sum().backward()\n"
            "    optimizer.step()\n"
            "if rank == 1:\n"
            "    with session.step(): pass\n"
        )
        cell = session.execute(code, on_output=lambda *_: None)
        assert cell.wait(60) and not cell.errors
    base = session.recording.last_step + 1 - 2
    with pytest.raises(RankFailed) as caught:
        session.run(10)
    error = caught.value
    assert error.workload_step == 4
    assert error.step == base + 4 == session.recording.last_step + 1
    assert f"in step 4 (step {error.step} of the recording): ValueError" in error.summary
    assert [line for line in error.rank_traceback.splitlines() if "File" in line] == [
        line for line in error.rank_traceback.splitlines() if __file__ in line
    ]
    begun = {
        rank: int(session.recording.records(kinds=Kind.STEP, ranks=rank)["step"].max())
        for rank in (0, 1)
    }
    assert begun[0] == begun[1] == error.step - 1
    session.restart()
    assert session.status().step == 0
    session.run(3)
