"""What a ring file still has, and directories merged into a live recording."""

from __future__ import annotations

import numpy as np
import pytest

from ddpviz.events import Batch, Failure, Kind, Plan
from ddpviz.probe.ring import Ring
from ddpviz.recording import UNNUMBERED, RankWriter, Recording, load, ring_path
from tests.recording.material import EPOCH_NS, batches, joined, plan, rows, same, written


def into(ring: Ring, records: np.ndarray) -> None:
    ring.write(*(record[:-1] for record in records.tolist()))


def test_load_adds_what_the_ring_has_and_the_file_lacks(tmp_path):
    sent = batches(4)
    written(tmp_path, sent[:3])
    ring = Ring(1000, rank=0, path=ring_path(tmp_path, 0))
    into(ring, sent[2].records)  # killed after the sink took it, before it was marked flushed
    into(ring, sent[3].records)
    recording = load(tmp_path)
    assert same(recording.records(), joined(sent))
    assert recording.missing == {}
    recording.merge(tmp_path)
    assert same(recording.records(), joined(sent))


@pytest.mark.parametrize("ring_first", [False, True])
def test_a_rank_that_begins_again_keeps_what_its_ring_had(tmp_path, ring_first):
    first, again = batches(4, pid=1), batches(2, pid=2, begin_ns=EPOCH_NS + 10**9)
    written(tmp_path, first[:3])
    ring = Ring(1000, rank=0, path=ring_path(tmp_path, 0))
    into(ring, first[2].records)
    into(ring, first[3].records)
    if ring_first:  # the ring left behind is then pushed aside, to rank-0000.ring.1
        Ring(1000, rank=0, path=ring_path(tmp_path, 0))
    writer = RankWriter(tmp_path, 0)
    assert list(tmp_path.glob("*.ring*")) == []
    for batch in again:
        writer(batch)
    found = load(tmp_path).records()
    assert same(found[:400], joined(first))
    assert found["begin_ns"][400:].tolist() == joined(again)["begin_ns"].tolist()
    assert found["step"][400] == joined(first)["step"].max() + 1


def test_a_ring_pushed_aside_belongs_to_the_attachment_that_filled_it(tmp_path):
    first, again = batches(3, pid=1), batches(3, pid=2, begin_ns=EPOCH_NS + 10**9)
    written(tmp_path, first[:2])
    written(tmp_path, again[:2])
    into(Ring(1000, rank=0, path=ring_path(tmp_path, 0)), first[2].records)
    into(Ring(1000, rank=0, path=ring_path(tmp_path, 0)), again[2].records)
    assert len(list(tmp_path.glob("*.ring*"))) == 2
    recording, live = load(tmp_path), Recording()
    for batch in first + again:
        live.append(batch)
    assert same(recording.records(), live.records())


def test_a_dead_rank_s_last_words_go_to_its_last_attachment(tmp_path):
    sent = batches(4)
    written(tmp_path, sent[:2])
    into(Ring(1000, rank=0, path=ring_path(tmp_path, 0)), sent[2].records)
    failure = Failure(0, 5, EPOCH_NS, "killed", "")
    writer = RankWriter(tmp_path, 0)
    writer.write(Batch(0, UNNUMBERED, sent[3].records, (failure,)), attachment=0)
    writer.close()
    recording = load(tmp_path)
    for _ in range(2):
        assert same(recording.records(), joined(sent))
        assert recording.notes(Failure) == [failure]
        recording.merge(tmp_path)


def test_a_ring_alone_is_read(tmp_path):
    ring = Ring(100, rank=5, path=ring_path(tmp_path, 5))
    into(ring, rows(10, rank=5))
    assert same(load(tmp_path).records(ranks=5), rows(10, rank=5))


def test_a_ring_that_cannot_be_read_is_a_remark(tmp_path):
    written(tmp_path, batches(2))
    ring_path(tmp_path, 0).write_bytes(b"nothing of ours")
    recording = load(tmp_path)
    assert len(recording) == 200
    assert len(recording.remarks) == 1 and "rank-0000.ring" in recording.remarks[0]
    RankWriter(tmp_path, 0).close()
    assert ring_path(tmp_path, 0).read_bytes() == b"nothing of ours"


def test_merging_while_the_rank_still_writes_takes_every_record_once(tmp_path):
    sent, recording = batches(6), Recording()
    writer, ring = RankWriter(tmp_path, 0), Ring(1000, rank=0, path=ring_path(tmp_path, 0))
    for batch in sent:
        into(ring, batch.records)
        recording.merge(tmp_path)  # from the ring, before the batch exists
        ring.take()
        writer(batch)
        recording.merge(tmp_path)  # in both
        ring.flushed()
        recording.merge(tmp_path)
    assert same(recording.records(), joined(sent))
    assert recording.notes(Plan) == [plan(0), plan(1)]


def test_notes_that_are_there_before_their_records_do_not_hide_them(tmp_path):
    sent = batches(4)
    written(tmp_path, sent)
    path = tmp_path / "rank-0000.arrow"
    data = path.read_bytes()
    path.write_bytes(data[:1200])
    recording = load(tmp_path)
    assert len(recording) == 0 and recording.notes(Plan) == [plan(0), plan(1)]
    path.write_bytes(data)
    recording.merge(tmp_path)
    assert same(recording.records(), joined(sent))
    assert recording.notes(Plan) == [plan(0), plan(1)]


def test_merge_brings_what_never_reached_the_live_recording(tmp_path):
    first, again = batches(6, pid=1), batches(2, pid=2, begin_ns=EPOCH_NS + 10**9)
    written(tmp_path, first)
    recording = Recording()
    for batch in (first[0], first[1], first[3]):
        recording.append(batch)
    assert recording.missing == {0: 1}
    recording.merge(tmp_path)
    assert recording.missing == {}
    ours = recording.records(kinds=[kind for kind in Kind if kind != Kind.GAP])
    assert sorted(ours.tolist()) == sorted(joined(first).tolist())
    for batch in again:
        recording.append(batch)
    assert recording.last_step == joined(first)["step"].max() + 1 + joined(again)["step"].max()


def test_merging_an_earlier_attachment_does_not_mislead_the_running_one(tmp_path):
    first, again = batches(3, pid=1), batches(4, pid=2, begin_ns=EPOCH_NS + 10**9)
    written(tmp_path, first)
    recording = Recording()
    for batch in first + again[:2]:
        recording.append(batch)
    recording.merge(tmp_path)
    for batch in again[2:]:
        recording.append(batch)
    assert len(recording) == len(joined(first + again))
    assert recording.missing == {}
