"""The directory format: what is written comes back, from one attachment or several."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from ddpviz.events import RECORD, Kind, Plan, Process
from ddpviz.recording import RankWriter, Recording, load
from tests.recording.material import EPOCH_NS, batches, joined, plan, process, same, written


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_what_ranks_write_is_what_load_reads(tmp_path, compression):
    sent = batches(5, rank=0) + batches(4, rank=3)
    recording = load(written(tmp_path / "a" / "b", sent, compression=compression))
    assert recording.ranks == [0, 3]
    assert same(recording.records(ranks=0), joined(sent[:5]))
    assert same(recording.records(ranks=3), joined(sent[5:]))
    assert recording.notes(Plan, rank=3) == [plan(0), plan(1)]
    assert recording.label(3, 1) == "allreduce float32 of 100"
    assert (recording.remarks, recording.missing, recording.dropped) == ((), {}, 0)


def test_any_reader_of_arrow_streams_reads_the_file(tmp_path):
    sent = batches(3)
    written(tmp_path, sent)
    table = pa.ipc.open_stream(tmp_path / "rank-0000.arrow").read_all()
    assert table.column_names == list(RECORD.names)
    assert table["begin_ns"].to_pylist() == joined(sent)["begin_ns"].tolist()
    with open(tmp_path / "recording.json") as file:
        assert json.load(file)["format"] == "ddpviz recording"


def test_every_batch_is_there_as_soon_as_the_writer_returns(tmp_path):
    writer, sent = RankWriter(tmp_path, 0), batches(6)
    assert len(load(tmp_path)) == 0
    for count, batch in enumerate(sent, 1):
        writer(batch)
        recording = load(tmp_path)
        assert same(recording.records(), joined(sent[:count]))
        assert recording.remarks == ()


def test_ranks_come_back_in_the_order_of_time_and_the_latest_stay(tmp_path):
    sent = batches(40, rank=0) + batches(40, rank=1)
    recording = load(written(tmp_path, sent), bound=2000)
    assert recording.dropped == 8000 - len(recording)
    for rank in (0, 1):  # not: all of the last rank and nothing of the first
        kept = recording.records(ranks=rank)
        assert len(kept) > 500
        assert same(kept, joined(sent[rank * 40 : rank * 40 + 40])[-len(kept) :])


def test_a_later_attachment_continues_the_file(tmp_path):
    first, again = batches(3, pid=1), batches(3, pid=2, begin_ns=EPOCH_NS + 10**9)
    written(tmp_path, first)
    written(tmp_path, again)
    live = Recording()
    for batch in first + again:
        live.append(batch)
    recording = load(tmp_path)
    assert same(recording.records(), live.records())
    assert recording.notes(Process) == [process(0, 1), process(0, 2, EPOCH_NS + 10**9)]
    assert len(pa.ipc.open_stream(tmp_path / "rank-0000.arrow").read_all()) == len(recording)


def test_a_writer_whose_recorder_begins_again_makes_a_new_attachment(tmp_path):
    sent = batches(3, pid=1) + batches(3, pid=2, begin_ns=EPOCH_NS + 10**9)
    recording = load(written(tmp_path, sent))
    assert len(recording) == 600
    assert recording.label(0, 2) == "allreduce float32 of 2"


def test_missing_batches_show_after_loading_too(tmp_path):
    sent = batches(6)
    recording = load(written(tmp_path, [sent[0], sent[1], sent[4], sent[2]]))
    assert recording.missing == {0: 1}
    assert recording.records(kinds=Kind.GAP)["index"].tolist() == [2, -1]
