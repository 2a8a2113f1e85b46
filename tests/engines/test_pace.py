"""``delay_ms`` and ``steps_per_second``: ranks that are slow on purpose."""

from __future__ import annotations

import time

import numpy as np
import pytest

from ddpviz.engines import Session
from ddpviz.events import Kind
from tests.engines.records import since


def test_a_delayed_rank_is_slow_in_its_own_step_and_the_other_waits_for_it(
    session: Session,
) -> None:
    session.load("mlp").run(3)
    assert session.configure(delay_ms={1: 150}) == "from the next step"
    last = session.recording.last_step
    session.run(3)
    assert session.configure(delay_ms={}) == "from the next step"
    steps = since(session, last, kinds=Kind.STEP)
    took_ms = (steps["end_ns"] - steps["begin_ns"]) / 1e6
    assert (took_ms[steps["rank"] == 1] >= 150).all()
    forwards = since(session, last, kinds=Kind.FORWARD, ranks=1)
    forwards = forwards[np.argsort(forwards["begin_ns"])]
    begun = np.sort(steps["begin_ns"][steps["rank"] == 1])
    assert ((forwards["begin_ns"] - begun) / 1e6 >= 149).all()
    # Rank 0 has nothing to sleep for: it is in its step as long because it waits.
    assert np.median(took_ms[steps["rank"] == 0]) > 100


@pytest.mark.parametrize("rate", [1.5, 20.0])
def test_steps_per_second_are_limited_and_changes_need_not_wait_for_the_next(
    session: Session, rate: float
) -> None:
    session.load("mlp").run(2)
    session.configure(steps_per_second=rate)
    begin, steps = time.monotonic(), max(2, int(rate))
    session.run(steps)
    assert time.monotonic() - begin > 0.9 * (steps - 1) / rate
    session.start()
    begin = time.monotonic()
    assert session.configure(steps_per_second=None) == "from the next step"
    assert time.monotonic() - begin < 30  # a bound for what hangs, on a shared machine
    session.stop()


def test_a_chunk_of_quick_steps_does_not_become_one_of_slow_steps(session: Session) -> None:
    """stop() would take it for a rank that hangs."""
    session.load("mlp", layers=1, width=8).run(200)
    session.start()
    session.configure(delay_ms={0: 900})
    slow = session.status().step
    session.stop()
    assert session.status().step - slow <= 4
    session.configure(delay_ms=None, steps_per_second=1)
    session.run(1)
    session.start()
    session.stop()
    assert session.failure is None
