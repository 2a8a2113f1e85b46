"""All ranks give a step the same number, whichever of them speaks first."""

from __future__ import annotations

from typing import Any

import pytest

from ddpviz.engines import Session, tasks
from ddpviz.events import Kind
from tests.waiting import until


def test_a_rank_that_records_before_another_is_asked(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.load("mlp").run(2)
    before, listen = session.recording.last_step, tasks._listen

    def held_up(client: Any, rank: int, *others: Any) -> None:
        listen(client, rank, *others)
        if rank == 0:  # its forward is recorded while rank 1 has not been asked yet
            until(lambda: session.recording.last_step > before, 10)

    with monkeypatch.context() as patch:
        patch.setattr(tasks, "_listen", held_up)
        session.run(1)
    session.run(1)
    steps = session.recording.records(kinds=Kind.STEP)
    for rank in (0, 1):
        mine = steps[steps["rank"] == rank]["step"].tolist()
        assert mine[-2:] == [before + 1, before + 2]
