"""``comm_hook``: torch's own, and a function of the user's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ddpviz.engines import ConfigurationError, Session
from ddpviz.events import Flag
from tests.engines.records import buckets


@pytest.mark.parametrize("hook", ["allreduce", "fp16", "powersgd"])
def test_comm_hooks_run_on_several_buckets_and_keep_replicas_equal(
    session: Session, hook: str
) -> None:
    session.load("mlp", bucket_cap_mb=1).run(3)
    plain = buckets(session, session.recording.last_step - 1)
    assert len(plain) > 4
    assert session.configure(comm_hook=hook) == "re-wrapped"
    session.run(3)
    last = session.recording.last_step
    session.run(5)
    hooked = buckets(session, last)
    assert ((hooked["flags"] & Flag.FROM_HOOK) > 0).all()
    assert len(set(session.checksums().values())) == 1
    per_step = hooked[hooked["step"] == last + 3]
    share = per_step["bytes"].sum() / plain["bytes"].sum()
    if hook == "allreduce":
        assert share == 1
    elif hook == "fp16":
        assert share == 0.5
    else:
        assert share < 0.2  # rank 1 of matrices of 256 x 256
    assert session.configure(comm_hook=None) == "re-wrapped"
    session.run(1)


def wrongly_annotated(state: object, bucket: int) -> Any:
    """torch looks at annotations, and wants its own."""


def tenth(state, bucket):  # type: ignore[no-untyped-def]
    future: torch.futures.Future[Any] = torch.futures.Future()
    future.set_result(bucket.buffer() / 10)
    print("hooked", state)
    return future


def test_a_hook_of_the_users_travels_by_value(
    session: Session, capfd: pytest.CaptureFixture[str]
) -> None:
    session.load("mlp")
    with pytest.raises(ConfigurationError, match="bucket annotation should be dist.GradBucket"):
        session.configure(comm_hook=wrongly_annotated)
    assert session.configure(comm_hook=tenth) == "re-wrapped"
    session.run(1)
    assert "[rank 1] hooked None" in capfd.readouterr().out
    knob = next(knob for knob in session.knobs() if knob.name == "comm_hook")
    assert knob.value.endswith("tenth")
    # Once another was chosen it can be chosen again, by its name; the refused one cannot.
    assert session.configure(comm_hook="fp16") == "re-wrapped"
    choices = next(one for one in session.knobs() if one.name == "comm_hook").choices
    assert choices is not None and "tenth" in choices and "wrongly_annotated" not in choices
    assert session.configure(comm_hook="tenth") == "re-wrapped"
    session.run(1)
    assert capfd.readouterr().out.count("[rank 1] hooked None") >= 1
    assert session.configure(comm_hook="tenth") == "nothing to change"
    session.configure(comm_hook=None)
