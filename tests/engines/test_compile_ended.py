"""A compilation that does not end: stop, kill and a comparison's stop, each within seconds."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ddpviz.engines import RankFailed, Session, SessionError, work
from tests.sessions import Shared
from tests.waiting import until

#: The promise: a compilation that is stopped or killed ends within this. A bound.
LIMIT_SECONDS = 10


def endless(rank: int, world_size: int, device: str, seconds: float = 3600.0) -> Any:
    """A model whose compilation takes so long in its backend, as Inductor's may."""
    import torch
    from torch import nn
    from torch._dynamo.backends import registry
    from torch._dynamo.backends.debugging import aot_eager

    def slow(module: Any, inputs: Any, **given: Any) -> Any:
        time.sleep(seconds)
        return aot_eager(module, inputs, **given)

    registry._COMPILER_FNS["aot_eager"] = slow

    class Net(nn.Module):  # Dynamo passes over nn.Sequential's own forward
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            return torch.relu(self.layer(x))

    torch.manual_seed(0)
    return (
        Net().to(device),
        lambda step: torch.randn(4, 8, device=device),
        lambda output, batch: output.square().mean(),
    )


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """Of this module alone: the backend stays slow in its engines."""
    found = Shared(tmp_path_factory.mktemp("compile"), engines=2)
    yield found
    found.close()


@pytest.fixture
def session(own: Shared) -> Session:
    session = own.working()
    session.load(endless, compile_mode="no_optimization", compile_backend="aot_eager")
    return session


def until_it_compiles(session: Session) -> str:
    until(lambda: "compiles graph" in session.status().reason, 60)
    return session.status().reason


def test_stop_says_beforehand_that_engines_end_and_gives_new_ones(
    session: Session, capfd: pytest.CaptureFixture[str]
) -> None:
    pids = session.pids
    session.start()
    reason = until_it_compiles(session)
    assert "stop waits 5 s for it, then ends the engines and starts new ones" in reason
    ended: list[float] = []
    begun = time.monotonic()
    remove = session.on_change(
        lambda: ended.append(time.monotonic()) if session.status().status == "restarting" else None
    )
    session.stop()
    remove()
    assert ended[0] - begun < LIMIT_SECONDS
    assert "stopped while rank " in capfd.readouterr().err
    assert session.failure is None and session.status().status == "idle"
    assert not {*session.pids.values()} & {*pids.values()}
    # The workload is there again, as it was configured, and trains once it compiles.
    assert session.status().step == 0
    session.load("mlp", layers=1)
    session.run(1)


def test_a_compilation_that_ends_within_the_limit_is_waited_for(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "_STOP_SECONDS", 60.0)  # however busy the machine is
    session.load(endless, seconds=1, compile_mode="no_optimization", compile_backend="aot_eager")
    pids = session.pids
    session.start()
    until_it_compiles(session)
    session.stop()
    assert session.pids == pids and session.failure is None
    assert session.status().status == "idle" and session.status().step > 0


def test_a_rank_killed_while_it_compiles_is_named_at_once(session: Session) -> None:
    struck: list[float] = []

    def strike() -> None:
        until_it_compiles(session)
        struck.append(time.monotonic())
        os.kill(session.pids[1], signal.SIGKILL)

    thread = threading.Thread(target=strike, daemon=True)
    thread.start()
    with pytest.raises(RankFailed) as caught:
        session.run(1)
    assert time.monotonic() - struck[0] < LIMIT_SECONDS
    thread.join()
    error = caught.value
    assert error.rank == 1 and "SIGKILL" in error.summary and "\n" not in error.summary
    session.restart()
    session.load("mlp", layers=1)
    session.run(1)


def test_a_comparison_that_compiles_is_stopped_and_the_workload_put_back(
    session: Session,
) -> None:
    session.load(endless)
    caught: list[BaseException] = []

    def compare() -> None:
        try:
            session.compare(
                modes=["eager", "no_optimization"], rounds=2, steps=2, backend="aot_eager"
            )
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=compare, daemon=True)
    thread.start()
    reason = until_it_compiles(session)
    assert session.status().status == "comparing"
    assert reason.startswith("the comparison runs: round 1 of 2, no_optimization; rank ")
    with pytest.raises(SessionError, match="the comparison runs: wait for it, or stop it"):
        session.start()
    session.stop()
    thread.join(60)
    (error,) = caught
    assert isinstance(error, SessionError) and "the comparison was stopped" in str(error)
    until(lambda: session.status().status == "idle", 60)
    assert session.failure is None
    knobs = {knob.name: knob.value for knob in session.knobs()}
    assert knobs["compile_mode"] == "none"
    session.run(1)
