"""A real kernel, its real comms: frames flow and requests are answered while a cell runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import ipykernel
import pytest
from jupyter_client.manager import KernelManager

from tests.explorer.conftest import connected, running_kernel
from tests.explorer.front import Front
from tests.waiting import until

#: A recording that grows by 20 steps a second.
GROWING = """
import threading
from ddpviz.explorer import announce
from tests.explorer.material import Stream
stream = Stream()
subject = announce(stream.recording)
ended = threading.Event()
def grow(stream, ended):
    while not ended.wait(0.05):
        stream.steps(1)
threading.Thread(target=grow, args=(stream, ended), daemon=True).start()
"""
FORGET = """
import gc
from ddpviz.explorer import registry
ended.set()
stream = subject = other = second = None
gc.collect()
print(len(registry.subjects()))
"""
#: A cell that lets other threads in only where Python does so by itself, until it is interrupted.
COMPUTING = """
def compute():
    while True: sum(range(99))
try:
    compute()
except KeyboardInterrupt:
    pass
"""
HAS_SUBSHELLS = int(ipykernel.__version__.split(".")[0]) >= 7


@pytest.fixture
def growing(shared: KernelManager) -> Iterator[Front]:
    with connected(shared) as client:
        front = Front(client)
        front.execute(GROWING)
        front.subshell = front.new_subshell() if HAS_SUBSHELLS else None
        front.open()
        yield front
        front.close()
        until(lambda: front.execute(FORGET) == "0\n")


def session_of(front: Front) -> str:
    return str(front.request("sessions")[0]["session"])


def test_targets_are_there_once_something_is_announced(growing: Front) -> None:
    (state,) = growing.request("sessions")
    assert state["status"] == "closed" and state["reason"] == "a recording: nothing runs"
    assert state["step"] >= 2
    assert growing.closed == []


def test_targets_are_there_after_load_ext() -> None:
    with running_kernel() as manager, connected(manager) as client:
        front = Front(client)
        front.open()
        until(lambda: front.read() or front.closed)  # nobody knows them yet: closed at once
        front.execute("%load_ext ddpviz")
        again = Front(client)
        again.open()
        assert again.request("sessions") == []


def test_another_version_is_turned_away(growing: Front) -> None:
    other = Front(growing.client)
    other.open(version=99)
    until(lambda: other.read() or len(other.closed) == 2)


def test_frames_flow_while_a_cell_runs(growing: Front, tmp_path: Path) -> None:
    growing.watch(session_of(growing), "timeline", "steps", "plan")
    growing.until_step(3)
    with growing.occupied(tmp_path / "end"):
        begun = len(growing.frames)
        until(lambda: growing.follow(0.1) or len(growing.frames) >= begun + 5)
    timelines = [
        one["views"]["timeline"] for _, one, _ in growing.frames if "timeline" in one["views"]
    ]
    steps = [one["step"] for one in timelines]
    assert steps == sorted(set(steps)) and steps[-1] > steps[0]
    for _, _, buffers in growing.frames:
        assert len(buffers) == 1


def test_frames_flow_while_a_cell_computes(shared: KernelManager, growing: Front) -> None:
    growing.watch(session_of(growing), "timeline")
    growing.until_step(3)
    cell = growing.run(COMPUTING)
    until(lambda: growing.begun(cell))
    begun = len(growing.frames)
    until(lambda: growing.follow(0.1) or len(growing.frames) >= begun + 2)
    assert growing.busy(cell)
    shared.interrupt_kernel()
    growing.done(cell)


@pytest.mark.skipif(not HAS_SUBSHELLS, reason="this ipykernel has no subshells")
def test_requests_are_answered_while_a_cell_runs(growing: Front, tmp_path: Path) -> None:
    session = session_of(growing)
    growing.watch(session, "timeline")
    growing.until_step(3)  # frames have been published from the broadcaster's thread
    with growing.occupied(tmp_path / "end"):
        for _ in range(5):
            growing.request("sessions")
            growing.request("figure", session=session, view="timeline")
            growing.follow(0.2)


def test_a_second_front_end_is_served_alike(shared: KernelManager, growing: Front) -> None:
    session = session_of(growing)
    with connected(shared) as client:
        second = Front(client)
        second.open()
        second.watch(session, "plan", "timeline")
        growing.watch(session, "timeline")
        growing.until_step(4)
        second.until_step(4)
        growing.close()
        got = second.frames[-1][1]["views"]
        second.until_step(second.frames[-1][1]["state"]["step"] + 5)
        assert set(got) <= {"plan", "timeline"}
        second.close()
        second.read(0.5)


def test_closing_a_front_end_ends_its_frames(growing: Front) -> None:
    growing.watch(session_of(growing), "timeline")
    growing.until_step(3)
    growing.close()
    clients = "from ddpviz.explorer.broadcaster import BROADCASTER; print(len(BROADCASTER.clients))"
    until(lambda: growing.execute(clients) == "0\n")
    got = len(growing.frames)
    growing.read(0.5)
    assert len(growing.frames) == got


def test_a_front_end_that_stops_reading_gets_no_queue(growing: Front) -> None:
    growing.watch(session_of(growing), "timeline")
    growing.until_step(3)
    got = len(growing.frames)
    time.sleep(3.0)  # the browser is frozen: it neither reads nor acknowledges
    growing.read(0.3)
    assert len(growing.frames) - got <= 5
    newest = int(growing.execute("print(stream.recording.last_step)"))
    growing.until_step(newest)


def test_announcing_and_forgetting_is_told(growing: Front) -> None:
    growing.request("sessions")
    growing.execute("other = Stream(); second = announce(other.recording)")
    until(lambda: growing.read() or any(len(one["sessions"]) == 2 for one in growing.told))
    assert len(growing.request("sessions")) == 2


def test_bokehjs_comes_in_one_message(growing: Front) -> None:
    result = growing.request("bokehjs")
    (code,) = growing.buffers
    assert len(code) > 500_000 and result["files"][0] == "bokeh.min.js"


def test_threads_of_the_user_keep_their_output(growing: Front) -> None:
    growing.watch(session_of(growing), "timeline")
    growing.until_step(3)
    said = growing.execute(
        "import threading\n"
        "t = threading.Thread(target=lambda: print('from a thread')); t.start(); t.join()"
    )
    assert said == "from a thread\n"
