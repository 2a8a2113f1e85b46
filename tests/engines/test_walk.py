"""``Session.walk``: the next step of every rank notes the functions that it runs."""

from __future__ import annotations

import pytest

from ddpviz.engines import Session, SessionError
from ddpviz.events import Walk
from ddpviz.explain import walk


def walked(session: Session, rank: int) -> list[int]:
    return [note.step for note in session.recording.notes(Walk, rank=rank)]


def test_the_next_step_is_walked_on_every_rank_and_only_that(session: Session) -> None:
    session.load("convnet", bucket_cap_mb=1)
    session.run(2)
    last = session.recording.last_step
    session.walk().run(3)
    for rank in (0, 1):
        assert walked(session, rank)[-1] == last + 1
        found = walk(session.recording, rank=rank)
        assert (found.step, found.profiled) == (last + 1, True)
        ran = [station.name for _, station in found.all()]
        assert "DistributedDataParallel._sync_buffers" in ran
        assert "Reducer::finalize_backward" in ran
    assert len(walked(session, 0)) == len(walked(session, 1))


def test_a_walk_can_be_asked_for_while_training_is_on(session: Session) -> None:
    session.load("mlp")
    before = len(walked(session, 0))
    session.start()
    try:
        session.walk()
        last = session.recording.last_step
        while session.recording.last_step <= last:
            session.predict(find_unused_parameters=True)  # anything short
    finally:
        session.stop()
    assert len(walked(session, 0)) == len(walked(session, 1)) == before + 1


def test_a_cells_step_is_walked_too(session: Session) -> None:
    session.load("mlp")
    before = len(walked(session, 0))
    session.walk()
    execution = session.execute(
        "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "model(torch.ones(1, 2)).sum().backward()\n"
        "optimizer.step()\n"
    )
    execution.wait(60)
    assert len(walked(session, 0)) == len(walked(session, 1)) == before + 1


def test_a_closed_session_says_so(tmp_path_factory: pytest.TempPathFactory) -> None:
    with Session(engines=1, directory=tmp_path_factory.mktemp("closed") / "a") as found:
        pass
    with pytest.raises(SessionError, match="is closed"):
        found.walk()
