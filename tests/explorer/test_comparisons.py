"""Compile modes compared in a real kernel, offered and run as the explorer's fold does it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ddpviz.engines.compiled import MODES
from ddpviz.explorer import controls, registry
from ddpviz.explorer.broadcaster import Client
from ddpviz.recording import Recording
from tests.explorer.acting import front_of, idle_afterwards, until_status
from tests.explorer.front import Front

SESSION = """
import ddpviz
session = ddpviz.Session(engines=2)
session.load("convnet", bucket_cap_mb=1, batch_size=2, image_size=8)
"""


@pytest.fixture(scope="module")
def front() -> Iterator[Front]:
    with front_of(SESSION) as found:
        yield found


@pytest.fixture
def session(front: Front) -> Iterator[str]:
    with idle_afterwards(front) as found:
        yield found


def test_every_mode_of_this_torch_is_offered_and_eager(front: Front, session: str) -> None:
    offered = front.request("comparable", session=session, seconds=60)
    modes = {one["name"]: one for one in offered["modes"]}
    assert list(modes) == ["eager", *MODES[1:]]
    assert [one["name"] for one in offered["backends"]] == ["inductor", "aot_eager", "eager"]
    assert all(one["disabled"] is None for one in modes.values())
    assert "syncs no buffers" in modes["python_reducer"]["remark"]
    assert "engines are restarted after it" in modes["python_reducer"]["remark"]
    assert "reads this mode nowhere" in modes[MODES[-1]]["remark"]


def test_a_mode_that_cannot_be_is_offered_with_the_reason(front: Front, session: str) -> None:
    front.request("set", session=session, values={"comm_hook": "fp16"})
    offered = front.request("comparable", session=session, seconds=60)
    modes = {one["name"]: one["disabled"] for one in offered["modes"]}
    assert "comm_hook exclude each other" in modes.pop("python_reducer")
    assert set(modes.values()) == {None}
    front.request("set", session=session, values={"comm_hook": None})


def test_it_says_that_it_runs_and_then_who_is_told_apart(front: Front, session: str) -> None:
    given = {"modes": ["eager", "ddp_optimizer"], "backend": "eager", "rounds": 2}
    number = front.ask("compare", session=session, **given)
    state = until_status(front, "comparing")
    assert state["reason"].startswith("the comparison runs")
    with pytest.raises(RuntimeError, match="the comparison runs: wait for it, or stop it"):
        front.request("start", session=session)
    switches = front.request("switches", session=session)
    assert {one["disabled"] for one in switches} == {
        "a comparison runs: wait for it, or press Stop"
    }
    found = front.answer(number, seconds=120)
    json.dumps(found, allow_nan=False)
    rows = {row["configuration"]: row for row in found["rows"]}
    assert set(rows) == {"eager", "ddp_optimizer"}
    assert {column["name"] for column in found["columns"]} <= {*rows["eager"]}
    assert rows["ddp_optimizer"]["graphs"] == 3 and rows["eager"]["graphs"] == 0
    assert all(name in found["verdict"] for name in rows)
    assert "its workload loaded anew" in found["remark"]
    assert until_status(front, "idle")["workload"] == "convnet"


def test_stop_ends_it(front: Front, session: str) -> None:
    given = {"modes": ["eager", "no_optimization"], "backend": "eager", "rounds": 20}
    number = front.ask("compare", session=session, **given)
    until_status(front, "comparing")
    front.request("stop", session=session, seconds=60)
    with pytest.raises(RuntimeError, match="the comparison was stopped: nothing can be shown"):
        front.answer(number, seconds=60)
    until_status(front, "idle")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"modes": ["eager"]}, "expected two or more"),
        ({"modes": "eager"}, "expected a list of names"),
        ({"modes": ["eager", "nonsense"]}, "expected one of 'none'"),
        ({"modes": ["eager", "no_optimization"], "rounds": "many"}, "rounds|steps"),
        ({"modes": ["eager", "no_optimization"], "backend": "gcc"}, "expected one of 'inductor'"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_a_sentence(
    front: Front, session: str, given: dict[str, Any], why: str
) -> None:
    with pytest.raises(RuntimeError, match=why) as raised:
        front.request("compare", session=session, **given)
    assert "\n" not in str(raised.value)


def test_a_recording_compares_nothing() -> None:
    recording = Recording()
    subject = registry.announce(recording)
    for action in ("compare", "comparable"):
        with pytest.raises(controls.Refused, match="this is a recording"):
            controls.handle(Client("none"), action, {"session": subject.id, "modes": []})


def test_code_is_read_and_refused_in_a_sentence() -> None:
    from tests.views.samples import compile_it, sample_recording

    recording = sample_recording()
    compile_it(recording, [[0, 1], [2, 3], [4, 5]], code="x = 1")
    subject = registry.announce(recording)
    args = {"session": subject.id, "view": "compile"}
    found, _ = controls.handle(Client("none"), "read", {**args, "key": "0/1"})
    assert found["text"].endswith("x = 1") and "# p0_: layer0.weight" in found["text"]
    for given in ({"key": "0/99"}, {"key": None}, {"view": "plan"}, {"view": "nothing"}):
        with pytest.raises(controls.Refused, match="found "):
            controls.handle(Client("none"), "read", {**args, **given})
