"""A rank that does not come: who waits for whom is told, and where that one is."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from ddpviz import Session
from ddpviz.explorer import registry
from ddpviz.explorer.states import session_state
from tests.waiting import until


def late(rank: int, world_size: int, device: Any) -> Any:
    """Rank 1 loads its fourth batch for ever."""
    import torch

    torch.manual_seed(0)

    def batch(step: int) -> Any:
        if step == 3 and rank == 1:
            time.sleep(3600)
        return torch.ones(2, 8)

    return torch.nn.Linear(8, 4), batch, lambda output, batch: output.sum()


def test_the_state_has_a_row_per_rank_with_its_line(tmp_path: Path) -> None:
    with Session(engines=2, directory=tmp_path / "run") as session:
        session.load(late)
        subject = registry.announce(session)
        session.start()
        told: list[dict[str, Any]] = []

        def known() -> bool:
            told.append(session_state(subject))
            return len(told[-1]["waiting"]) == 2 and all(
                row["where"] for row in told[-1]["waiting"]
            )

        try:
            until(known, 60)
        except AssertionError as error:
            raise AssertionError(f"no line for each rank: {told[-1]}") from error
        state = told[-1]
        inside, missing = state["waiting"]
        assert state["status"] == "waiting"
        assert (inside["rank"], inside["state"]) == (0, "in it")
        assert inside["collective"].endswith("(bucket 0)") and inside["size"] == "144 B"
        assert sorted(inside["parameters"]) == ["bias", "weight"]
        assert (missing["rank"], missing["state"]) == (1, "has not entered it")
        assert Path(missing["where"].rpartition(":")[0]).name == Path(__file__).name
        assert missing["code"] == "time.sleep(3600)"
        assert state["reason"].startswith(f"rank 0 is in {inside['collective']}, 144 B")
        assert "rank 1 has not entered it, it is at test_hang.py:" in state["reason"]
        assert state["ranks"][0]["state"] == f"in {inside['collective']}"
        with pytest.raises(Exception, match="rank 1"):
            session.stop()
