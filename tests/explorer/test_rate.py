"""The explorer open, the store still takes what comes: nothing is rebuilt from all records."""

from __future__ import annotations

import time

from ddpviz.events import Batch
from ddpviz.explorer import registry
from ddpviz.explorer.broadcaster import BROADCASTER
from ddpviz.views.live_views import VIEWS
from tests.explorer.material import Stream
from tests.explorer.test_broadcaster import Browser
from tests.waiting import until


def append_seconds(stream: Stream, steps: int) -> tuple[float, int]:
    """CPU time of this thread to append so many steps, ten a batch; how many events they were."""
    batches = [
        Batch(rank, 1 + number, stream.batch(rank, 3 + 10 * number, 10))
        for number in range(steps // 10)
        for rank in (0, 1)
    ]
    began = time.thread_time()
    for batch in batches:
        stream.recording.append(batch)
    return time.thread_time() - began, sum(len(batch.records) for batch in batches)


def test_250_000_events_a_second_leave_the_appending_thread_idle() -> None:
    stream = Stream()
    subject = registry.announce(stream.recording)
    browser = Browser("rate")
    browser.watch(subject.id, *VIEWS)
    until(lambda: browser.step == 2)
    seconds, events = append_seconds(stream, 2_000)
    assert events > 50_000
    assert seconds < events / 250_000
    until(lambda: browser.step == 2_002)
    BROADCASTER.remove(browser.client)


def test_a_frame_of_a_long_recording_costs_what_one_of_a_short_one_does() -> None:
    took = []
    for steps in (300, 6_000):
        stream = Stream()
        append_seconds(stream, steps)
        subject = registry.announce(stream.recording)
        subject.pictures(list(VIEWS), None, 1000)
        best = 1e9
        for number in range(5):
            for rank in (0, 1):
                records = stream.batch(rank, 3 + steps + number, 1)
                stream.recording.append(Batch(rank, 10_000 + number, records))
            began = time.thread_time()
            subject.pictures(list(VIEWS), None, 1000)
            best = min(best, time.thread_time() - began)
        took.append(best)
    short, long = took
    assert long < 3 * short + 0.02
