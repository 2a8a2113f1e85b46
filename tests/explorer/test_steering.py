"""A real session in a real kernel, steered as the sidebar does it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.explorer.conftest import connected, running_kernel
from tests.explorer.front import Front
from tests.waiting import until

SESSION = """
import ddpviz
session = ddpviz.Session(engines=2)
session.load("convnet", bucket_cap_mb=1)
print(session.id)
"""


@pytest.fixture(scope="module")
def front() -> Iterator[Front]:
    with running_kernel() as manager, connected(manager) as client:
        found = Front(client)
        found.execute(SESSION, seconds=120)
        found.subshell = found.new_subshell()
        found.open()
        yield found
        found.execute("session.close()", seconds=60)


@pytest.fixture
def session(front: Front) -> Iterator[str]:
    """The session's id; stopped afterwards, and as it was loaded."""
    (state,) = front.request("sessions")
    yield str(state["session"])
    front.request("stop", session=state["session"])


def state_of(front: Front) -> dict[str, Any]:
    (state,) = front.request("sessions")
    return dict(state)


def until_state(front: Front, seconds: float = 30.0, **wanted: Any) -> dict[str, Any]:
    def is_so() -> dict[str, Any] | None:
        state = state_of(front)
        return state if all(state[name] == value for name, value in wanted.items()) else None

    return until(is_so, seconds) or {}


def switch(front: Front, session: str, name: str) -> Any:
    found = {one["name"]: one for one in front.request("switches", session=session)}
    return found[name]


def until_view(front: Front, view: str, holds: Any, seconds: float = 30.0) -> dict[str, Any]:
    """Follow until the view's newest update is as wanted; the update."""

    def found() -> dict[str, Any] | None:
        front.follow(0.1)
        updates = [one["views"][view] for _, one, _ in front.frames if view in one["views"]]
        return updates[-1] if updates and holds(updates[-1]) else None

    return until(found, seconds) or {}


def test_a_session_is_found_by_itself(front: Front, session: str) -> None:
    state = state_of(front)
    assert state["status"] == "idle" and state["workload"] == "convnet"
    assert state["backend"] == "gloo" and state["world_size"] == 2
    assert state["hint"] == "press Start to train"
    assert [one["rank"] for one in state["ranks"]] == [0, 1]


def test_start_and_stop(front: Front, session: str) -> None:
    assert front.request("start", session=session)["outcome"] == "started"
    before = until_state(front, status="training")["step"]
    front.watch(session, "timeline", "steps", "plan")
    front.until_step(before + 3, seconds=30)

    def rated() -> dict[str, Any] | None:  # tables are brought up to date twice a second
        state = state_of(front)
        return None if state["steps_per_second"] is None else state

    state = until(rated, 30) or {}
    assert state["steps_per_second"] > 0 and 0 <= state["exposed_share"] <= 1
    assert front.request("stop", session=session)["outcome"] == "stopped"
    until_state(front, status="idle")


def test_starting_twice_is_refused_in_a_sentence(front: Front, session: str) -> None:
    front.request("start", session=session)
    with pytest.raises(RuntimeError, match="training runs"):
        front.request("start", session=session)


def test_buffer_sync_off_and_the_broadcasts_vanish(front: Front, session: str) -> None:
    front.watch(session, "buffers")
    front.request("start", session=session)
    until_view(front, "buffers", lambda one: "of buffers in" in one["title"])
    values = {"forward_sync_buffers": False}
    predicted = front.request("predict", session=session, values=values)
    assert predicted["refused"] is None and "wrap" in predicted["needs"]
    assert "re-wrapped" in front.request("set", session=session, values=values)["outcome"]
    assert switch(front, session, "forward_sync_buffers")["value"] is False
    update = until_view(front, "buffers", lambda one: "no buffer was broadcast" in one["title"])
    assert "is off" in update["title"]

    def marked(one: Any) -> bool:  # once the step that the change belongs to is over
        return any("forward_sync_buffers=False" in text for text in one["sources"]["marks"]["time"])

    until_view(front, "buffers", marked)
    front.request("set", session=session, values={"forward_sync_buffers": True})


def test_the_bucket_cap_changes_the_plan(front: Front, session: str) -> None:
    front.watch(session, "plan")
    front.request("start", session=session)
    until_view(front, "plan", lambda one: "plan 1 has 3 buckets" in one["title"])
    front.request("set", session=session, values={"bucket_cap_mb": 25})
    until_view(
        front, "plan", lambda one: "plan 1 has" in one["title"] and "3 b" not in one["title"]
    )
    front.request("set", session=session, values={"bucket_cap_mb": 1})


def test_what_torch_refuses_is_refused_before_it_is_done(front: Front, session: str) -> None:
    values = {"bucket_cap_mb": -1}
    assert front.request("predict", session=session, values=values)["refused"]
    with pytest.raises(RuntimeError) as raised:
        front.request("set", session=session, values=values)
    assert "\n" not in str(raised.value)
    assert state_of(front)["status"] == "idle"


def test_every_switch_says_what_it_is_and_what_it_needs(front: Front, session: str) -> None:
    switches = front.request("switches", session=session)
    names = [one["name"] for one in switches]
    assert names[:2] in (
        ["forward_sync_buffers", "bucket_cap_mb"],
        ["broadcast_buffers", "bucket_cap_mb"],
    )
    for one in switches:
        assert one["explanation"] and (one["needs"] or one["disabled"]), one
        assert one["kind"] in ("bool", "log-slider", "choice", "int", "float", "list")
        assert one["label"]
    assert len(set(names)) == len(names)


def test_a_switch_works_while_a_cell_trains(front: Front, session: str) -> None:
    cell = front.run("session.run(steps=100_000)")
    until_state(front, status="training")
    change = front.ask("set", session=session, values={"gradient_as_bucket_view": True})
    front.request("sessions")  # what waits for the ranks does not hold up the next request
    assert "re-wrapped" in front.answer(change)["outcome"]
    front.request("sessions")
    assert front.busy(cell)
    front.request("stop", session=session)
    until(lambda: not front.busy(cell), 30)
    front.request("set", session=session, values={"gradient_as_bucket_view": False})


def test_a_late_answer_leaves_the_way_open_during_a_cell(
    front: Front, session: str, tmp_path: Path
) -> None:
    run = front.ask("run", session=session, steps=100_000)  # answered after two seconds
    until_state(front, status="training")
    with front.occupied(tmp_path / "end"):
        assert front.answer(run)["outcome"] == "training 100000 steps"
        front.request("sessions")
        front.request("stop", session=session)


def test_fingerprints_are_switched_on_and_the_replicas_compared(front: Front, session: str) -> None:
    front.watch(session, "replicas")
    front.request("run", session=session, steps=2)
    unknown = until_view(front, "replicas", lambda view: view["facts"])
    assert "no fingerprints were taken" in unknown["title"]
    assert switch(front, session, "fingerprints")["value"] == "off"
    wanted = {"fingerprints": "every step"}
    assert front.request("predict", session=session, values=wanted)["refused"] is None
    refused = front.request("predict", session=session, values={"fingerprints": "now"})["refused"]
    assert "every 20 steps" in refused and "\n" not in refused
    outcome = front.request("set", session=session, values=wanted)["outcome"]
    assert outcome == "fingerprints: every step"
    assert switch(front, session, "fingerprints")["value"] == "every step"
    front.request("run", session=session, steps=3)
    told = until_view(front, "replicas", lambda view: "equal on 2 ranks" in view["title"])
    assert told["title"].startswith("parameters and gradients are equal")
    front.request("set", session=session, values={"fingerprints": "off", "accumulation": 1})
    assert switch(front, session, "fingerprints")["value"] == "off"


def test_a_straggler_is_named_while_the_others_wait(front: Front, session: str) -> None:
    front.watch(session, "timeline")
    front.request("set", session=session, values={"delay_ms": {"0": 0, "1": 2000}})
    front.request("start", session=session)
    state = until_state(front, status="waiting")
    assert "rank 1 has not entered it" in state["reason"], state
    assert any(one["state"].startswith("in ") for one in state["ranks"])
    front.request("set", session=session, values={"delay_ms": {"0": 0, "1": 0}})
    until_state(front, status="training")


def test_a_session_is_displayed_as_its_explorer(front: Front, session: str) -> None:
    front.execute("session")
    (shown,) = [one for one in front.outputs if one["kind"] == "execute_result"]
    assert "application/vnd.jupyter.widget-view+json" in shown["data"]
    assert "data:image/svg+xml" in shown["data"]["text/html"]


def test_a_killed_rank_is_named_and_restart_brings_it_back(front: Front, session: str) -> None:
    front.watch(session, "timeline")
    front.request("start", session=session)
    until_state(front, status="training")
    pids = {one["rank"]: one["pid"] for one in state_of(front)["ranks"]}
    os.kill(pids[1], signal.SIGKILL)
    state = until_state(front, status="failed", seconds=60)
    assert state["failure"]["rank"] == 1
    assert state["reason"].startswith("rank 1 failed")
    assert state["hint"] == "press Restart for new engines"
    assert [one["state"] for one in state["ranks"] if one["rank"] == 1] == ["dead"]
    with pytest.raises(RuntimeError, match="rank 1 failed"):
        front.request("start", session=session)
    assert all(one["disabled"] for one in front.request("switches", session=session))
    restart = front.ask("restart", session=session)
    assert until_state(front, status="restarting")["reason"]
    assert front.answer(restart, seconds=90)["outcome"] == "restarted"
    state = until_state(front, status="idle")
    assert state["failure"] is None
    assert {one["pid"] for one in state["ranks"]}.isdisjoint(pids.values())
    front.request("start", session=session)
    until_state(front, status="training")


CELL = "%%ddp {line}\n"


def transcript(front: Front) -> str:
    shown = [one for one in front.outputs if one["kind"].endswith("display_data")]
    return str(shown[-1]["data"]["text/plain"]) if shown else ""


def test_a_cell_on_the_ranks_prints_as_it_runs(front: Front, session: str, tmp_path: Path) -> None:
    front.execute("%load_ext ddpviz")
    front.execute(
        CELL.format(line="") + "import os, time\n"
        "print('first of', world_size, 'is', rank)\n"
        f"while not os.path.exists({str(tmp_path / 'end')!r}): time.sleep(0.01)\n"
        "print('second')"
    )
    until(lambda: front.read() or "first of 2 is 1" in transcript(front))
    assert "second" not in transcript(front)  # it is live, and the cell has returned
    (tmp_path / "end").touch()
    until(lambda: front.read() or transcript(front).count("second") == 2)
    assert "[0] first of 2 is 0" in transcript(front)


def test_a_cell_can_be_for_one_rank_and_waited_for(front: Front, session: str) -> None:
    front.execute("%load_ext ddpviz")
    front.execute(CELL.format(line="--ranks 1 --blocking") + "print('only', rank, device)")
    assert transcript(front).splitlines() == ["[1] only 1 cpu"]


def test_errors_of_a_cell_are_shown_once(front: Front, session: str) -> None:
    front.execute("%load_ext ddpviz")
    front.outputs.clear()
    cell = front.run(
        CELL.format(line="--blocking") + "def f():\n    raise ValueError('on purpose')\nf()"
    )
    until(lambda: not front.busy(cell), 60)
    assert transcript(front).count("Traceback (most recent call last)") == 1
    assert transcript(front).startswith("ranks 0, 1: ValueError: on purpose")
    (error,) = [one for one in front.outputs if one["kind"] == "error"]
    assert error["ename"] == "CellFailed"


def test_ddp_built_in_a_cell_is_recorded(front: Front, session: str) -> None:
    front.execute("%load_ext ddpviz")
    before = state_of(front)["step"]
    front.execute(
        CELL.format(line="--blocking") + "import torch\n"
        "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "for _ in range(3):\n"
        "    model(torch.ones(2, 8)).sum().backward()\n"
        "    optimizer.step()\n"
        "    optimizer.zero_grad()\n",
        seconds=60,
    )
    until(lambda: state_of(front)["step"] == before + 3)


def test_status_tells_of_every_rank(front: Front, session: str) -> None:
    front.execute("%load_ext ddpviz")
    said = front.execute("%ddp_status")
    assert session in said and "rank 0: idle" in said and "rank 1: idle" in said
    assert front.execute("%ddp_stop") == "stopped\n"
    assert front.execute(f"%ddp_stop --session {session}") == "stopped\n"
