"""``Session.fingerprints``: are the ranks' replicas equal, while they train."""

from __future__ import annotations

import pytest

from ddpviz.engines import ConfigurationError, Session


def steps_of(session: Session, after: int) -> list[int]:
    """The sampled steps after one of the recording's, counted from there."""
    table = session.recording.replicas()
    table = table[(table["what"] == "parameters") & (table["step"] > after)]
    assert table["equal"].all() and set(table["ranks"]) <= {2}
    return [int(step) - after - 1 for step in table["step"]]


def test_steps_are_sampled_until_it_is_switched_off_also_after_a_restart(session: Session) -> None:
    with pytest.raises(ConfigurationError, match="found every=-1, expected a whole number"):
        session.fingerprints(every=-1)
    try:
        session.load("convnet", bucket_cap_mb=1).run(2)
        begin = session.recording.last_step
        session.fingerprints(every=1).run(3)
        assert steps_of(session, begin) == [0, 1, 2]
        session.restart()
        begin = session.recording.last_step
        session.run(2)
        assert steps_of(session, begin) == [0, 1]
        # Changed on rank 1 alone, the replicas part.
        assert session.execute("session.ddp.module[-1].bias.data[0] += rank").wait(30)
        session.run(1)
        table = session.recording.replicas().set_index(["what", "step"]).loc["parameters"]
        assert not table["equal"].iloc[-1] and table["names"].iloc[-1] == ("17.bias",)
        assert table["since_step"].iloc[-1] == begin + 3
    finally:
        session.fingerprints(every=0)
    begin = session.recording.last_step
    session.run(2)
    assert steps_of(session, begin) == []
