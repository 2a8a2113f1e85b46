"""Demonstrations in a real kernel, listed and run as the explorer's menu does it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ddpviz.demonstrations import demonstrations
from ddpviz.engines import Session, SessionError
from ddpviz.explorer import controls, registry
from ddpviz.explorer.broadcaster import Client
from ddpviz.recording import Recording
from ddpviz.views.live_views import VIEWS
from tests.explorer.acting import front_of, idle_afterwards, until_status
from tests.explorer.front import Front
from tests.waiting import until

SESSION = """
import ddpviz
session = ddpviz.Session(engines=2)
session.load("mlp", layers=2)
"""


@pytest.fixture(scope="module")
def front() -> Iterator[Front]:
    with front_of(SESSION) as found:
        yield found


@pytest.fixture
def session(front: Front) -> Iterator[str]:
    with idle_afterwards(front) as found:
        yield found


def shown(front: Front, view: str, step: int) -> dict[str, Any]:
    """The view's newest update, of that step."""

    def found() -> dict[str, Any] | None:
        front.follow(0.1)
        updates = [one["views"][view] for _, one, _ in front.frames if view in one["views"]]
        return updates[-1] if updates and updates[-1]["step"] == step else None

    return until(found, 30) or {}


def test_all_are_listed_once_with_what_the_article_says(front: Front) -> None:
    families = front.request("demonstrations")
    listed = [one for family in families for one in family["demonstrations"]]
    assert [one["name"] for one in listed] == [one.name for one in demonstrations()]
    assert len({family["family"] for family in families}) == len(families) > 1
    for one in listed:
        assert one["title"] and one["view"] in VIEWS
        assert all(claim["claim"] and claim["verdict"] for claim in one["claims"])


def test_one_says_that_it_runs_and_then_what_it_found(front: Front, session: str) -> None:
    number = front.ask("demonstrate", session=session, name="straggler")
    state = until_status(front, "demonstrating")
    assert "'One slow rank makes all others wait, bucket by bucket' runs" in state["reason"]
    with pytest.raises(RuntimeError, match="the demonstration 'One slow rank.*' runs: wait for it"):
        front.request("start", session=session)
    with pytest.raises(RuntimeError, match="runs: wait for it, or stop it"):
        front.request("demonstrate", session=session, name="join")
    values = {"bucket_cap_mb": 3}
    with pytest.raises(RuntimeError, match="runs: wait for it, or stop it"):
        front.request("set", session=session, values=values)
    switches = front.request("switches", session=session)
    assert {one["disabled"] for one in switches} == {
        "a demonstration runs: wait for it, or press Stop"
    }
    found = front.answer(number, seconds=60)
    assert found["held"] is True and found["view"] == "timeline"
    assert "each of 6 buckets was launched last by rank 1" in found["sentences"][0]
    assert len(found["sentences"]) == 2
    assert found["remark"] == (
        "mlp is no longer loaded: the demonstration took its place, load it again. "
        "The session is idle, with the demonstration's chain loaded"
    )
    state = until_status(front, "idle")
    assert state["workload"] == "chain"
    front.watch(session, "timeline", step=found["step"])
    assert "waited" in shown(front, "timeline", found["step"])["title"]


def test_the_live_view_says_why_nothing_was_due_after_an_evaluation(
    front: Front, session: str
) -> None:
    found = front.request("demonstrate", session=session, name="around-eval", seconds=60)
    front.watch(session, "buffers", step=found["step"])
    update = shown(front, "buffers", found["step"])
    assert update["title"].endswith("none was due: the forward before it was without gradients")
    assert any("without gradients (buffers: yes" in fact for fact in update["facts"])


def test_it_is_refused_in_a_sentence_while_training_runs(front: Front, session: str) -> None:
    front.request("start", session=session)
    with pytest.raises(RuntimeError, match="training runs in the background") as raised:
        front.request("demonstrate", session=session, name="join")
    assert "\n" not in str(raised.value)
    front.request("stop", session=session)


def test_stop_ends_it(front: Front, session: str) -> None:
    number = front.ask("demonstrate", session=session, name="drift")
    until_status(front, "demonstrating")
    front.request("stop", session=session)
    with pytest.raises(RuntimeError, match="was stopped: nothing can be shown of it, run it again"):
        front.answer(number)
    until_status(front, "idle")
    assert front.request("demonstrate", session=session, name="drift", seconds=60)["held"]


def test_an_unknown_one_is_refused(front: Front, session: str) -> None:
    with pytest.raises(RuntimeError, match="found no demonstration 'nothing'"):
        front.request("demonstrate", session=session, name="nothing")


def test_a_recording_and_a_closed_session_run_none() -> None:
    recording = Recording()
    subject = registry.announce(recording)
    assert subject.state()["recording"] is True
    args = {"session": subject.id, "name": "join"}
    with pytest.raises(controls.Refused, match="this is a recording"):
        controls.handle(Client("none"), "demonstrate", args)
    with Session(engines=1) as session:
        of_one = {"session": registry.announce(session).id, "name": "join"}
        with pytest.raises(controls.Refused, match="expected 2 at least"):
            controls.handle(Client("none"), "demonstrate", of_one)
    with pytest.raises(controls.Refused, match="the session is closed"):
        controls.handle(Client("none"), "demonstrate", of_one)


def test_another_thread_cannot_use_the_session_meanwhile() -> None:
    with Session(engines=2) as session:
        results: list[Any] = []
        one = threading.Thread(
            target=lambda: results.append(session.demonstrate("straggler")), daemon=True
        )
        one.start()
        until(lambda: session.status().status == "demonstrating", 30)
        for use in (
            session.start,
            lambda: session.load("mlp"),
            lambda: session.execute("pass"),
            lambda: session.fingerprints(3),
            lambda: session.demonstrate("join"),
        ):
            with pytest.raises(SessionError, match="runs: wait for it, or stop it"):
                use()
        one.join(60)
        assert results[0].held and session.status().status == "idle"
