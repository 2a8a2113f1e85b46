"""A picture is drawn, and sent, again only where what it shows has changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ddpviz.events import Batch, Bucket, Configuration, Plan
from ddpviz.explorer import registry
from ddpviz.explorer.broadcaster import BROADCASTER
from ddpviz.following import follower as follow
from ddpviz.views import live_timeline
from tests.explorer.material import Stream
from tests.explorer.test_broadcaster import Browser
from tests.views.samples import ZERO_NS
from tests.waiting import until


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Steps whose timeline was drawn, one after the other."""
    steps: list[int] = []
    whole = live_timeline.build_rows

    def counted(source: Any, **given: Any) -> Any:
        steps.append(source.step)
        return whole(source, **given)

    monkeypatch.setattr(live_timeline, "build_rows", counted)
    monkeypatch.setattr(follow, "_REFRESH_SECONDS", 0.0)
    return steps


@pytest.fixture
def browser() -> Iterator[Browser]:
    made = Browser("pictures")
    yield made
    BROADCASTER.remove(made.client)


def note(stream: Stream, sequence: int, *notes: Any) -> None:
    """A batch of rank 0 without records."""
    stream.recording.append(Batch(0, sequence, stream.batch(0, 0, 1)[:0], notes))


def test_a_step_is_drawn_once_while_nothing_of_it_comes(drawn: list[int]) -> None:
    stream = Stream()
    subject = registry.announce(stream.recording)
    for _ in range(3):
        subject.pictures(["timeline"], None, 1000)
    assert drawn == [2]
    stream.begin(rank=0)  # a later step, which is not complete
    subject.pictures(["timeline"], None, 1000)
    assert drawn == [2]
    late = stream.batch(1, 2, 1)[:1]
    stream.recording.append(Batch(1, 1, late))
    subject.pictures(["timeline"], None, 1000)
    assert drawn == [2, 2]


def test_a_step_is_drawn_again_for_what_was_configured_before_it(drawn: list[int]) -> None:
    stream = Stream()
    subject = registry.announce(stream.recording)
    subject.pictures(["timeline"], None, 1000)
    for sequence, (at_ns, cap) in enumerate([(ZERO_NS, 25), (ZERO_NS + 150_000_000, 1)], start=1):
        note(stream, sequence, Configuration(0, 0, at_ns, {"bucket_cap_mb": cap}))
    (_, picture) = subject.pictures(["timeline"], 2, 1000)["timeline"]
    assert picture.x_label is not None and "bucket_cap_mb=1" not in picture.x_label
    stream._sequence = 2
    stream.steps(1)  # the change is placed once more steps are complete
    (_, picture) = subject.pictures(["timeline"], 2, 1000)["timeline"]
    assert picture.x_label is not None and "bucket_cap_mb=1" in picture.x_label


def test_a_plan_is_sent_once_and_not_with_every_step(browser: Browser) -> None:
    stream = Stream()
    subject = registry.announce(stream.recording)
    browser.watch(subject.id, "timeline", "plan")
    for _ in range(4):
        last = stream.steps(1)
        until(lambda last=last: browser.step == last)  # type: ignore[misc]
    assert plans(browser) == 1
    buckets = (Bucket((0, 1, 2, 3, 4, 5), 6_000, 1_000),)
    plan = Plan(0, 7, last, ZERO_NS, "rebuild", buckets)
    stream._sequence += 1
    note(stream, stream._sequence, plan)
    until(lambda: plans(browser) == 2)
    told = [one["views"]["plan"]["title"] for one in browser.frames if "plan" in one["views"]]
    assert "plan 7 has 1 bucket" in told[-1]


def plans(browser: Browser) -> int:
    return sum("plan" in one["views"] for one in browser.frames)
