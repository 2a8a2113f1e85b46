"""Following a recording costs what is new, and shows what is there."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from ddpviz.analysis import buffers, steps
from ddpviz.analysis.waiting import waiting
from ddpviz.events import Batch, Configuration, Ended, Failure, Kind
from ddpviz.following import follower as follow
from ddpviz.following.follower import Follower
from ddpviz.recording import Recording
from ddpviz.views.live import HISTORY_STEPS
from tests.explorer.material import Stream
from tests.views.samples import ZERO_NS, batches_of, sample_recording


@pytest.fixture(autouse=True)
def no_throttle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_REFRESH_SECONDS", 0.0)


def test_nothing_recorded_has_no_step() -> None:
    follower = Follower(Recording())
    assert follower.newest() is None
    assert follower.newest_complete == -1
    assert follower.span() == (-1, -1)
    assert follower.moment(None, "press Start", 800).hint == "press Start"


def test_the_newest_step_is_the_last_that_all_ranks_completed() -> None:
    stream = Stream()
    follower = Follower(stream.recording)
    assert follower.newest() == 2
    last = stream.steps(4)
    assert follower.newest() == last == 6
    stream.begin(rank=0)
    assert follower.newest() == 6


def test_a_step_that_hangs_is_shown_as_far_as_it_got(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream()
    follower = Follower(stream.recording)
    begun = stream.begin(rank=0)
    monkeypatch.setattr(follow, "_UNFINISHED_SECONDS", -1.0)
    assert follower.newest() == begun


def test_a_step_that_failed_is_shown_at_once() -> None:
    stream = Stream()
    follower = Follower(stream.recording)
    begun = stream.begin(rank=0)
    failure = Failure(1, begun, ZERO_NS, "RuntimeError: x", "")
    stream.recording.append(Batch(1, 2, np.zeros(0, stream.batch(0, 0, 1).dtype), (failure,)))
    assert follower.newest() == begun


def test_tables_are_those_of_the_whole_recording() -> None:
    stream = Stream()
    follower = Follower(stream.recording)
    for count in (1, 3, 7, 2):
        stream.steps(count)
        follower.history()
    _, found = follower.history()
    for name, whole in (("steps", steps(stream.recording)), ("buffers", buffers(stream.recording))):
        table = getattr(found, name).sort_values(["step", "rank"], ignore_index=True)
        whole = whole.sort_values(["step", "rank"], ignore_index=True)
        assert table.equals(whole), name
    assert found.sent["collectives"].tolist() == [1] * 32
    assert set(found.sent["op"] + " " + found.sent["dtype"]) == {"broadcast float32"}


def test_tables_keep_the_last_steps_only() -> None:
    stream = Stream()
    follower = Follower(stream.recording)
    for _ in range(4):
        last = stream.steps(HISTORY_STEPS // 2)
        follower.history()
    table = follower.history()[1].steps
    assert sorted(set(table["step"])) == list(range(last - HISTORY_STEPS + 1, last + 1))


def test_a_follower_of_a_long_recording_begins_with_its_last_steps() -> None:
    stream = Stream()
    last = stream.steps(3 * HISTORY_STEPS)
    table = Follower(stream.recording).history()[1].steps
    assert table["step"].max() == last
    assert table["step"].nunique() == HISTORY_STEPS


def test_a_look_reads_what_is_new_only(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream()
    stream.steps(HISTORY_STEPS)
    follower = Follower(stream.recording)
    follower.history()
    read: list[int] = []
    whole = stream.recording.records

    def counted(*args: Any, **kwargs: Any) -> np.ndarray:
        found = whole(*args, **kwargs)
        read.append(len(found))
        return found

    monkeypatch.setattr(stream.recording, "records", counted)
    stream.steps(2)
    follower.history()
    follower.moment(None, "", 800)
    per_step = len(stream.batch(0, 3, 1)) * 2
    assert sum(read) <= 4 * per_step


def test_records_that_come_late_change_their_step() -> None:
    stream = Stream()
    follower = Follower(stream.recording)
    whole = stream.batch(0, 3, 1)
    late = whole["kind"] == Kind.COLLECTIVE_DONE
    stream.recording.append(Batch(1, 1, stream.batch(1, 3, 1)))
    stream.recording.append(Batch(0, 1, whole[~late]))
    before = follower.history()[1].steps.set_index(["step", "rank"])
    assert np.isnan(before.loc[(3, 0), "hidden_communication_ms"])
    stream.recording.append(Batch(0, 2, whole[late]))
    after = follower.history()[1].steps.set_index(["step", "rank"])
    assert after.loc[(3, 0), "hidden_communication_ms"] >= 0


def test_a_moment_has_the_records_of_its_step_only() -> None:
    stream = Stream()
    stream.steps(10)
    moment = Follower(stream.recording).moment(5, "", 800)
    assert set(moment.source.records()["step"].tolist()) == {5}


def test_the_change_of_a_configuration_belongs_to_the_next_step() -> None:
    stream = Stream()
    follower = Follower(stream.recording)
    empty = np.zeros(0, stream.batch(0, 0, 1).dtype)
    for sequence, (at_step, cap) in enumerate([(0, 25), (5, 1)], start=1):
        note = Configuration(0, 0, ZERO_NS + at_step * 100_000_000 - 1, {"bucket_cap_mb": cap})
        stream.recording.append(Batch(0, sequence, empty, (note,)))
    assert follower.history()[1].changes == ()
    for number in range(3, 8):
        records = {rank: stream.batch(rank, number, 1) for rank in (0, 1)}
        stream.recording.append(Batch(0, number, records[0]))
        stream.recording.append(Batch(1, number - 2, records[1]))
    (change,) = follower.history()[1].changes
    assert (change.step, change.text) == (5, "bucket_cap_mb=1")


def test_who_waits_for_whom_is_told() -> None:
    stream = Stream()
    records = stream.batch(0, 3, 1)
    bucket = (records["kind"] == Kind.COLLECTIVE_DONE) & (records["cause"] == 3)
    stream.recording.append(Batch(0, 1, records[~bucket & (records["kind"] != Kind.FINALIZE)]))
    source = Follower(stream.recording).moment(3, "", 800).source
    found = waiting(source)
    assert found.reason.startswith(f"rank 0 is in {found.doing[0]}")
    assert found.reason.endswith("; rank 1 has not entered it")
    assert found.doing[0].endswith("(bucket 0)")


def test_any_thread_may_look_while_others_append() -> None:
    stream = Stream()
    follower = Follower(stream.recording)
    errors: list[BaseException] = []
    ended = threading.Event()

    def look() -> None:
        try:
            while not ended.is_set():
                follower.moment(None, "", 800)
                follower.pulse()
                follower.span()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(60):
        stream.steps(2)
    ended.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert follower.history()[1].steps["step"].max() == follower.newest_complete == 122


def test_closing_ends_the_subscription() -> None:
    stream = Stream()
    follower = Follower(stream.recording)
    follower.close()
    before = follower.pulse().version
    stream.steps(1)
    assert follower.pulse().version == before


def test_ranks_that_have_ended_hold_nobody_back() -> None:
    """Under Join ranks end after different numbers of steps: rank 0 goes on alone."""
    follower = Follower(Recording())
    for batch in batches_of(sample_recording(steps=5)):
        records = batch.records if batch.rank == 0 else batch.records[batch.records["step"] < 2]
        follower.recording.append(Batch(batch.rank, 0, records, batch.notes))
    assert follower.newest_complete == 1
    nothing = follower.recording.records(steps=[])
    for rank in (1, 0):
        follower.recording.append(Batch(rank, 1, nothing, (Ended(rank, 2**62),)))
        assert follower.newest_complete == follower.newest() == 4
    assert Follower(follower.recording).newest() == 4  # also of what was recorded before
