"""Frames are the newest, never a queue, and never more than ten a second."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from ddpviz.explorer import broadcaster, registry
from ddpviz.explorer.broadcaster import BROADCASTER, Client
from ddpviz.explorer.controls import Refused, answer, handle
from tests.explorer.material import Stream
from tests.waiting import until


class Browser:
    """A client's other end: keeps what it got; acknowledges each frame, or none."""

    def __init__(self, name: str, acknowledges: bool = True) -> None:
        self.frames: list[dict[str, Any]] = []
        self.at: list[float] = []
        self.told: list[dict[str, Any]] = []
        self.acknowledges = acknowledges
        self.breaks = False
        self.client: Client = BROADCASTER.client(name)
        self.client.send = self._receive

    def _receive(self, data: dict[str, Any], buffer: bytes | None) -> None:
        if self.breaks:
            raise ConnectionError("gone")
        if data["type"] != "frame":
            self.told.append(data)
            return
        assert buffer is not None
        self.frames.append(data)
        self.at.append(time.monotonic())
        if self.acknowledges:
            threading.Thread(target=self.ask, args=("ack",), kwargs=_of(data)).start()

    def ask(self, action: str, **args: Any) -> Any:
        return handle(self.client, action, args)[0]

    def watch(self, session: str | None, *views: str, step: Any = "newest", **more: Any) -> None:
        given = {"session": session, "views": list(views), "step": step, "hidden": False, **more}
        self.ask("watch", **given)

    @property
    def step(self) -> int:
        """The step of the newest timeline that came."""
        found = [one["views"]["timeline"] for one in self.frames if "timeline" in one["views"]]
        return int(found[-1]["step"]) if found else -1


def _of(frame: dict[str, Any]) -> dict[str, Any]:
    return {"sequence": frame["sequence"]}


@pytest.fixture
def stream() -> Stream:
    return Stream()


@pytest.fixture
def browsers() -> Iterator[list[Browser]]:
    made: list[Browser] = []
    yield made
    for one in made:
        BROADCASTER.remove(one.client)


@pytest.fixture
def browser(browsers: list[Browser]) -> Browser:
    browsers.append(Browser("a"))
    return browsers[-1]


def test_a_client_that_watches_nothing_gets_no_frames(stream: Stream, browser: Browser) -> None:
    subject = registry.announce(stream.recording)
    browser.watch(subject.id, "timeline")
    until(lambda: browser.frames)
    browser.watch(None)
    got = len(browser.frames)
    stream.steps(3)
    time.sleep(0.5)  # nothing is to come: there is no fact to wait for
    assert len(browser.frames) <= got + 1  # one may have been on its way


def test_the_newest_step_comes(stream: Stream, browser: Browser) -> None:
    subject = registry.announce(stream.recording)
    browser.watch(subject.id, "timeline", "steps", "plan")
    until(lambda: browser.step == 2)
    last = stream.steps(5)
    until(lambda: browser.step == last)
    frame = browser.frames[-1]
    assert frame["state"]["session"] == subject.id
    assert frame["client"] == "a"


def test_a_step_that_is_looked_at_stays(stream: Stream, browser: Browser) -> None:
    subject = registry.announce(stream.recording)
    browser.watch(subject.id, "timeline", step=1)
    until(lambda: browser.step == 1)
    stream.steps(10)
    until(lambda: browser.frames[-1]["state"]["step"] == 12)
    assert browser.step == 1
    assert sum("timeline" in one["views"] for one in browser.frames) <= 3


def test_at_most_ten_frames_a_second(stream: Stream, browser: Browser) -> None:
    subject = registry.announce(stream.recording)
    browser.watch(subject.id, "timeline")
    until(lambda: stream.steps(1) and len(browser.frames) >= 8, seconds=30)
    gaps = [after - before for before, after in zip(browser.at, browser.at[1:], strict=False)]
    assert min(gaps) >= 0.095


def test_a_slow_browser_has_one_frame_and_then_the_newest(
    stream: Stream, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcaster, "_BLIND_SECONDS", 60.0)  # no other comes without an answer
    browser.acknowledges = False
    subject = registry.announce(stream.recording)
    browser.watch(subject.id, "timeline")
    until(lambda: browser.step == 2)
    got = len(browser.frames)
    for _ in range(50):
        last = stream.steps(2)
    time.sleep(0.5)  # nothing is to come
    assert len(browser.frames) == got
    browser.ask("ack", sequence=browser.frames[-1]["sequence"])
    until(lambda: browser.step == last)
    assert len(browser.frames) == got + 1  # none of the fifty states in between


def test_a_browser_that_cannot_acknowledge_still_moves(stream: Stream, browser: Browser) -> None:
    browser.acknowledges = False
    subject = registry.announce(stream.recording)
    browser.watch(subject.id, "timeline")
    until(lambda: browser.step == 2)
    for _ in range(2):
        last = stream.steps(1)
        until(lambda last=last: browser.step == last)  # type: ignore[misc]
    gaps = [after - before for before, after in zip(browser.at, browser.at[1:], strict=False)]
    assert min(gaps) >= 0.95


def test_a_browser_that_is_slow_is_waited_for(
    stream: Stream, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcaster, "_BLIND_SECONDS", 0.2)
    browser.acknowledges = False
    subject = registry.announce(stream.recording)
    browser.watch(subject.id, "timeline")
    until(lambda: browser.step == 2)
    time.sleep(0.15)  # it draws so long
    browser.ask("ack", sequence=browser.frames[-1]["sequence"])
    got = len(browser.frames)
    until(lambda: stream.steps(1) and len(browser.frames) >= got + 2, seconds=30)
    assert browser.at[got + 1] - browser.at[got] >= 3 * 0.15


def test_a_browser_that_answers_after_the_next_frame_has_left_is_waited_for(
    stream: Stream, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would never be known for how long it draws, and always have two."""
    monkeypatch.setattr(broadcaster, "_BLIND_SECONDS", 0.2)
    browser.acknowledges = False
    subject = registry.announce(stream.recording)
    browser.watch(subject.id, "timeline")
    until(lambda: stream.steps(1) and len(browser.frames) >= 2, seconds=30)
    browser.ask("ack", sequence=browser.frames[0]["sequence"])
    assert browser.client.answer_seconds >= 0.2
    browser.ask("ack", sequence=browser.frames[-1]["sequence"])
    got = len(browser.frames)
    until(lambda: stream.steps(1) and len(browser.frames) >= got + 2, seconds=30)
    assert browser.at[got + 1] - browser.at[got] >= 3 * 0.2


def test_a_browser_that_never_answers_finds_no_queue(
    stream: Stream, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcaster, "_BLIND_SECONDS", 0.2)
    browser.acknowledges = False
    subject = registry.announce(stream.recording)
    browser.watch(subject.id, "timeline")
    until(lambda: stream.steps(1) and len(browser.frames) >= 5, seconds=30)
    gaps = [after - before for before, after in zip(browser.at, browser.at[1:], strict=False)]
    for gap, least in zip(gaps, (0.2, 0.4, 0.8, 1.6), strict=False):
        assert gap >= 0.95 * least


def test_a_slow_browser_does_not_slow_another(stream: Stream, browsers: list[Browser]) -> None:
    slow, quick = Browser("slow", acknowledges=False), Browser("quick")
    browsers += [slow, quick]
    subject = registry.announce(stream.recording)
    for one in browsers:
        one.watch(subject.id, "timeline")
    until(lambda: quick.step == slow.step == 2)
    for _ in range(4):
        last = stream.steps(1)
        until(lambda last=last: quick.step == last)  # type: ignore[misc]
    assert len(quick.frames) > len(slow.frames)


def test_a_hidden_client_gets_nothing_until_it_is_seen(stream: Stream, browser: Browser) -> None:
    subject = registry.announce(stream.recording)
    browser.watch(subject.id, "timeline", hidden=True)
    stream.steps(1)
    time.sleep(0.5)  # nothing is to come
    assert browser.frames == []
    browser.watch(subject.id, "timeline")
    until(lambda: browser.step == 3)


def test_views_that_did_not_change_are_not_sent_again(stream: Stream, browser: Browser) -> None:
    subject = registry.announce(stream.recording)
    browser.watch(subject.id, "timeline", "steps")
    until(lambda: browser.step == 2)
    got = len(browser.frames)
    until(lambda: len(browser.frames) > got, seconds=5)  # the heartbeat
    assert browser.frames[-1]["views"] == {}
    assert browser.frames[-1]["state"]["session"] == subject.id


def test_a_state_alone_can_be_watched(stream: Stream, browser: Browser) -> None:
    subject = registry.announce(stream.recording)
    browser.watch(subject.id)
    until(lambda: browser.frames)
    assert browser.frames[0]["views"] == {}


def test_a_client_whose_connection_breaks_is_let_go(stream: Stream, browser: Browser) -> None:
    subject = registry.announce(stream.recording)
    browser.watch(subject.id, "timeline")
    until(lambda: browser.frames)
    browser.breaks = True
    stream.steps(1)
    until(lambda: browser.client.gone)
    assert browser.client not in BROADCASTER.clients


def test_a_client_that_was_not_heard_of_for_long_gets_nothing(
    stream: Stream, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser.acknowledges = False
    subject = registry.announce(stream.recording)
    browser.watch(subject.id, "timeline")
    until(lambda: browser.frames)
    closed: list[bool] = []
    browser.client.on_lost.append(lambda: closed.append(True))
    monkeypatch.setattr(broadcaster, "_LOST_SECONDS", 0.0)
    got = len(browser.frames)
    stream.steps(1)
    until(lambda: closed)
    assert browser.client not in BROADCASTER.clients
    assert len(browser.frames) <= got + 1
    monkeypatch.undo()
    browser.ask("ack", sequence=browser.frames[-1]["sequence"])
    until(lambda: browser.step == 3)


def test_the_thread_ends_with_its_last_client(stream: Stream) -> None:
    browser, subject = Browser("last"), registry.announce(stream.recording)
    browser.watch(subject.id, "timeline")
    until(lambda: browser.frames)
    for client in BROADCASTER.clients:
        BROADCASTER.remove(client)
    until(lambda: not any(t.name == "ddpviz-explorer" for t in threading.enumerate()))
    again = Browser("again")
    again.watch(subject.id, "timeline")
    until(lambda: again.frames)
    BROADCASTER.remove(again.client)


def test_sessions_are_told_to_who_watches_nothing(browser: Browser) -> None:
    subject = registry.announce(Stream().recording)
    until(lambda: browser.told)
    told = browser.told[-1]
    assert told["type"] == "sessions"
    assert subject.id in [one["session"] for one in told["sessions"]]


def test_a_step_that_cannot_be_drawn_says_so_and_the_next_goes_on(
    stream: Stream, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ddpviz.views import live_timeline

    whole = live_timeline.build_rows

    def build(source: Any, **given: Any) -> Any:
        if source.step == 3:
            raise ValueError("nobody can draw this")
        return whole(source, **given)

    monkeypatch.setattr(live_timeline, "build_rows", build)
    subject = registry.announce(stream.recording)
    browser.watch(subject.id, "timeline", step=3)
    stream.steps(1)
    until(lambda: any("cannot be drawn" in _title(frame) for frame in browser.frames))
    browser.watch(subject.id, "timeline")
    stream.steps(1)
    until(lambda: browser.step == 4)
    assert "cannot be drawn" not in _title(browser.frames[-1])


def _title(frame: dict[str, Any]) -> str:
    return str(frame["views"].get("timeline", {}).get("title", ""))


def test_requests_that_make_no_sense_are_refused_in_a_sentence(
    stream: Stream, browser: Browser
) -> None:
    subject = registry.announce(stream.recording)
    bad: list[tuple[Any, dict[str, Any], str]] = [
        ("explode", {}, "found the action 'explode'"),
        (None, {}, "found the action None"),
        ("watch", {"session": "s99-1", "views": []}, "found no session 's99-1'"),
        ("watch", {"session": subject.id, "views": ["pie"]}, "found the view 'pie'"),
        ("watch", {"session": subject.id, "views": [], "step": "last"}, "found the step 'last'"),
        ("figure", {"session": subject.id, "view": 7}, "found the view 7"),
        ("start", {"session": subject.id}, "this is a recording"),
        ("set", {"session": subject.id, "values": {"a": 1}}, "this is a recording"),
        ("ack", {"sequence": "x"}, "invalid literal"),
    ]
    for action, args, expected in bad:
        with pytest.raises(Refused, match=expected) as raised:
            browser.ask(action, **args) if action else handle(browser.client, action, args)
        assert "\n" not in str(raised.value)


def answered(client: Client, data: Any) -> dict[str, Any]:
    replies: list[dict[str, Any]] = []
    answer(client, data, lambda reply, _: replies.append(reply))
    (reply,) = replies
    return reply


def test_whatever_comes_over_a_comm_gets_an_answer(browser: Browser) -> None:
    for data in (None, [], "x", {}, {"id": 3}, {"id": 4, "action": "ack", "args": []}):
        reply = answered(browser.client, data)
        assert reply["ok"] is (isinstance(data, dict) and data.get("id") == 4)
        assert "error" in reply or reply["ok"]


def test_bokehjs_comes_from_the_installed_bokeh(browser: Browser) -> None:
    import bokeh

    result, (code,) = handle(browser.client, "bokehjs", {})
    assert result == {"version": bokeh.__version__, "files": ["bokeh.min.js", "bokeh-gl.min.js"]}
    assert b"Bokeh" in code and len(code) > 500_000


def test_a_step_that_was_never_recorded_is_said_to_be_missing(
    stream: Stream, browser: Browser
) -> None:
    subject = registry.announce(stream.recording)
    browser.watch(subject.id, "timeline", step=77)
    until(lambda: browser.frames)
    assert "77" in _title(browser.frames[0])


def test_a_recording_is_known_as_long_as_somebody_holds_its_subject(stream: Stream) -> None:
    subject = registry.announce(stream.recording)
    id, gone = subject.id, weakref.ref(subject)
    assert registry.subject(id) is subject
    assert registry.announce(stream.recording) is subject
    _ = subject.follower
    del subject
    gc.collect()
    until(lambda: gc.collect() >= 0 and gone() is None)
    with pytest.raises(LookupError):
        registry.subject(id)
