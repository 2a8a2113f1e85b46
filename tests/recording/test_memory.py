"""The store in memory: windows, bound, gaps, duplicates, restarts, subscribers, threads."""

from __future__ import annotations

import logging
import threading

import numpy as np
import pytest

from ddpviz.events import RECORD, Batch, Group, Kind, Module, Plan, Process
from ddpviz.recording import Recording
from ddpviz.recording.attachments import Offsets
from tests.recording.material import EPOCH_NS, batches, joined, plan, process, rows


def filled(sent: list[Batch], bound: int = 1_000_000) -> Recording:
    recording = Recording(bound)
    for batch in sent:
        recording.append(batch)
    return recording


def overlapping(records: np.ndarray, begin_ns: int, end_ns: int) -> np.ndarray:
    ends = np.maximum(records["begin_ns"], records["end_ns"])
    return records[(records["begin_ns"] <= end_ns) & (ends >= begin_ns)]


@pytest.mark.parametrize("in_order", [True, False])
def test_window_finds_what_a_full_scan_finds(in_order):
    random = np.random.default_rng(7)
    everything = rows(40_000)  # more than two chunks
    if not in_order:
        random.shuffle(everything[:30_000])
    sent = [Batch(0, n, everything[n * 100 : (n + 1) * 100]) for n in range(400)]
    recording = filled(sent)
    low, high = int(everything["begin_ns"].min()) - 10, int(everything["end_ns"].max()) + 10
    for _ in range(200):
        begin_ns, end_ns = sorted(int(time) for time in random.integers(low, high, 2))
        if random.random() < 0.5:
            end_ns = begin_ns + int(random.integers(0, 20_000))
        expected = overlapping(everything, begin_ns, end_ns)
        assert np.array_equal(recording.window(begin_ns, end_ns), expected)


def test_window_finds_a_span_that_began_long_before_it_was_recorded():
    late = rows(1, seed=1)
    late["begin_ns"], late["end_ns"] = EPOCH_NS - 10**12, EPOCH_NS + 10**9
    recording = filled([Batch(0, 0, rows(50_000)), Batch(0, 1, late)])
    assert np.array_equal(recording.window(EPOCH_NS - 10**11, EPOCH_NS - 10**11), late)


def test_window_finds_a_span_that_ends_long_after_its_neighbours():
    early = rows(1, seed=1)
    early["begin_ns"], early["end_ns"] = EPOCH_NS, EPOCH_NS + 10**12
    recording = filled([Batch(0, 0, early), Batch(0, 1, rows(100))])
    assert np.array_equal(recording.window(EPOCH_NS + 10**11, EPOCH_NS + 10**11), early)


def test_unknown_end_counts_as_a_point():
    open_span = rows(1)
    open_span["begin_ns"], open_span["end_ns"] = EPOCH_NS, 0
    recording = filled([Batch(0, 0, open_span)])
    assert len(recording.window(EPOCH_NS, EPOCH_NS)) == 1
    assert len(recording.window(EPOCH_NS + 1, EPOCH_NS + 10)) == 0


def test_filters_by_kind_rank_and_step():
    sent = batches(5, rank=0) + batches(5, rank=1)
    recording, everything = filled(sent), joined(sent)
    is_wanted = (everything["kind"] == Kind.FORWARD) & (everything["rank"] == 1)
    found = recording.window(0, 2**62, kinds=Kind.FORWARD, ranks=[1])
    assert np.array_equal(found, everything[is_wanted])
    found = recording.records(kinds=[Kind.FORWARD], ranks=1, steps=range(2, 4))
    is_step = (everything["step"] >= 2) & (everything["step"] < 4)
    assert np.array_equal(found, everything[is_wanted & is_step])
    assert len(recording.records(steps=[10**6])) == len(recording.records(kinds=[])) == 0
    assert recording.records(steps=[]).dtype == recording.window(0, 1).dtype == RECORD


def test_what_is_returned_is_a_copy():
    recording = filled(batches(2))
    recording.records()["step"] = 99
    recording.window(0, 2**62)["step"] = 99
    assert recording.last_step == recording.records()["step"].max() == 3


def test_past_the_bound_the_oldest_records_go_and_are_counted():
    sent = batches(100)
    recording, everything = filled(sent, bound=1000), joined(sent)
    kept = recording.records()
    assert 0 < len(kept) == len(recording) <= 1000
    assert recording.dropped == len(everything) - len(kept)
    assert np.array_equal(kept, everything[recording.dropped :])
    assert recording.begin_ns == everything["begin_ns"].min()
    assert recording.notes(Plan) == [plan(0), plan(1)]  # notes stay
    assert recording.memory_bytes <= 1000 * RECORD.itemsize


def test_a_bound_below_one_is_refused():
    with pytest.raises(ValueError, match="a bound of 0 records, expected at least 1"):
        Recording(bound=0)


def test_records_of_another_type_are_refused():
    with pytest.raises(ValueError, match="expected ddpviz.events.RECORD"):
        Recording().append(Batch(0, 0, np.zeros(3)))


def test_notes_and_labels_by_rank_in_order():
    recording = filled(batches(3, rank=1) + batches(3, rank=0))
    assert recording.notes(Plan, rank=0) == [plan(0), plan(1)]
    assert recording.notes(Process) == [process(1), process(0)]
    assert recording.label(1, 1) == "allreduce float32 of 100"
    assert recording.label(1, 0) == recording.label(7, 1) == ""
    assert recording.ranks == [0, 1]


def test_an_empty_recording_answers():
    recording = Recording()
    assert len(recording.records()) == len(recording.window(0, 2**62)) == len(recording) == 0
    assert (recording.last_step, recording.begin_ns, recording.ranks) == (-1, 0, [])


def test_a_batch_seen_before_is_ignored():
    sent = batches(5)
    recording = filled([*sent, *sent, sent[3]])
    assert np.array_equal(recording.records(), joined(sent))
    assert recording.notes(Plan) == [plan(0), plan(1)]
    assert recording.missing == {}


def test_a_jump_leaves_a_gap_record_and_a_late_batch_heals_it():
    sent = batches(8)
    recording = filled([sent[0], sent[1], sent[5]])
    gap = recording.records(kinds=Kind.GAP)
    assert gap["index"].tolist() == [3]
    assert gap["begin_ns"][0] == sent[5].records["begin_ns"][0]
    assert recording.missing == {0: 3}
    for late in (sent[3], sent[3], sent[2], sent[4]):
        recording.append(late)
    recording.append(sent[6])
    assert recording.missing == {}
    assert recording.records(kinds=Kind.GAP)["index"].tolist() == [3, -1, -1, -1]
    assert len(recording) == len(joined(sent[:7])) + 4


def test_a_rank_that_restarts_continues_after_the_steps_and_ids_before():
    first = [batch for rank in (0, 1) for batch in batches(4, rank=rank, pid=100)]
    again = [batch for rank in (0, 1) for batch in batches(4, rank=rank, pid=200)]
    recording = filled(first + again)
    last_step = int(joined(first)["step"].max())
    assert len(recording) == len(joined(first + again))
    second = recording.records(steps=range(last_step + 1, 1000))
    shifted = Offsets(step=last_step + 1, label=1, module=1, group=1).records(joined(again))
    assert np.array_equal(second, shifted)
    assert recording.label(0, 1) == "allreduce float32 of 100"
    assert recording.label(0, 2) == "allreduce float32 of 200"
    assert [note.id for note in recording.notes(Module, rank=1)] == [0, 1]
    assert [note.id for note in recording.notes(Group, rank=1)] == [0, 1]
    assert [note.module for note in recording.notes(Plan, rank=0)] == [0, 0, 1, 1]
    assert recording.missing == {}


def test_ids_that_do_not_fit_become_none_not_another_id():
    records = rows(3)
    records["module"], records["group"], records["label"] = [254, 255, 1], [254, 255, 1], [9, 0, 1]
    shifted = Offsets(label=65_530, module=10, group=10).records(records)
    assert shifted["module"].tolist() == shifted["group"].tolist() == [255, 255, 11]
    assert shifted["label"].tolist() == [0, 0, 65_531]


def test_a_batch_0_that_comes_late_is_no_restart():
    sent = batches(4)
    recording = filled([sent[1], sent[0], sent[2], sent[3]])
    assert recording.missing == {}
    assert recording.last_step == joined(sent)["step"].max()


def test_subscribers_get_every_batch_once_and_cannot_break_the_writer(caplog):
    recording, seen = Recording(), []

    def broken(batch: Batch) -> None:
        raise RuntimeError("no")

    recording.subscribe(broken)
    unsubscribe = recording.subscribe(lambda batch: seen.append((batch, len(recording))))
    sent = batches(6)
    with caplog.at_level(logging.ERROR, "ddpviz"):
        for batch in [sent[0], sent[0], sent[1], sent[4]]:
            recording.append(batch)
    assert [batch.sequence for batch, _ in seen] == [0, 1, 4]
    assert [count for _, count in seen] == [100, 200, 301]  # in the recording when told
    assert seen[2][0].records["kind"][0] == Kind.GAP
    assert len(caplog.records) == 1
    unsubscribe()
    unsubscribe()
    recording.append(sent[5])
    assert len(seen) == 3


def test_many_threads_append_while_others_read():
    sent = {rank: batches(60, rank=rank) for rank in range(4)}
    recording, wrong, done = Recording(bound=100_000), [], threading.Event()

    def read() -> None:
        while not done.is_set():
            found = recording.window(0, 2**62, ranks=2)
            if not np.array_equal(found, joined(sent[2])[: len(found)]):
                wrong.append(len(found))

    def write(rank: int) -> None:
        for batch in sent[rank]:
            recording.append(batch)

    readers = [threading.Thread(target=read) for _ in range(2)]
    writers = [threading.Thread(target=write, args=(rank,)) for rank in sent]
    for thread in readers + writers:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in readers:
        thread.join()
    assert not wrong
    for rank, of_rank in sent.items():
        assert np.array_equal(recording.records(ranks=rank), joined(of_rank))
