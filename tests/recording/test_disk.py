"""The directory format: what is written comes back, also torn, growing, continued or foreign."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from ddpviz.events import RECORD, Batch, Failure, Kind, Plan, Process
from ddpviz.probe.ring import Ring
from ddpviz.recording import UNNUMBERED, RankWriter, Recording, load, ring_path
from tests.recording.material import EPOCH_NS, batches, joined, plan, process, rows


def written(directory, sent, **options):
    for rank in sorted({batch.rank for batch in sent}):
        writer = RankWriter(directory, rank, **options)
        for batch in sent:
            if batch.rank == rank:
                writer(batch)
        writer.close()
        writer.close()
    return directory


def same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.tobytes() == other.tobytes()


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


# --- torn tails ----------------------------------------------------------------------------------


def test_arrow_file_cut_at_any_byte_gives_the_whole_batches_before_it(tmp_path):
    sent = batches(2, size=6)
    writer, ends = RankWriter(tmp_path, 0), []
    path = tmp_path / "rank-0000.arrow"
    for batch in sent:
        writer(batch)
        ends.append(path.stat().st_size)
    writer.close()
    data = path.read_bytes()
    for cut in range(len(data)):  # every byte
        path.write_bytes(data[:cut])
        recording = load(tmp_path)
        whole = sum(end <= cut for end in ends)
        expected = joined(sent[:whole]) if whole else np.empty(0, RECORD)
        assert same(recording.records(), expected), cut
        assert recording.notes(Plan) == [plan(0)]
        assert len(recording.remarks) <= 1
        if cut not in (0, *ends) and cut > ends[0]:
            assert f"its last {cut - ends[whole - 1]} bytes are left out" in recording.remarks[0]


def test_notes_file_cut_at_any_byte_gives_the_whole_notes_before_it(tmp_path):
    sent = batches(4, size=6)
    written(tmp_path, sent)
    path = tmp_path / "rank-0000.notes.jsonl"
    data = path.read_bytes()
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        recording = load(tmp_path)
        assert same(recording.records(), joined(sent)), cut
        assert recording.notes(Plan) == [plan(0), plan(1)][: len(recording.notes(Plan))]
        lines = data[:cut].count(b"\n") + data[cut : cut + 1].count(b"\n")
        assert len(recording._intake.notes) == len(
            {line[:22] for line in data.split(b"\n")[:lines]}
        )


def test_both_files_of_both_ranks_cut_anywhere_and_continued(tmp_path):
    sent = {rank: batches(6, size=30, rank=rank) for rank in (0, 1)}
    written(tmp_path, sent[0] + sent[1])
    paths = sorted(tmp_path.glob("rank-*"))
    whole = {path: path.read_bytes() for path in paths}
    random = np.random.default_rng(3)
    later = batches(3, size=30, rank=0, pid=900, begin_ns=EPOCH_NS + 10**9)
    for _ in range(60):
        for path in paths:
            path.write_bytes(whole[path][: random.integers(0, len(whole[path]) + 1)])
        torn = load(tmp_path)
        for rank in (0, 1):
            found = torn.records(ranks=rank)
            assert len(found) % 30 == 0
            assert same(found, joined(sent[rank])[: len(found)])
        written(tmp_path, later)
        continued = load(tmp_path)
        old = len(torn.records(ranks=0))
        found = continued.records(ranks=0)
        assert same(found[:old], torn.records(ranks=0))
        assert len(found) == old + 90
        assert found["begin_ns"][old:].tolist() == joined(later)["begin_ns"].tolist()
        assert process(0, 900, EPOCH_NS + 10**9) in continued.notes(Process)


def test_damage_that_is_no_cut_never_raises_when_it_is_at_the_tail(tmp_path):
    sent = batches(3)
    path = written(tmp_path, sent) / "rank-0000.arrow"
    data = path.read_bytes()
    for tail in (b"\0" * 64, b"\xff\xff\xff\xff", b"\xff" * 64, b"\xff\xff\xff\xff\x40\0\0\0" * 9):
        path.write_bytes(data + tail)
        recording = load(tmp_path)
        assert same(recording.records(), joined(sent))
        assert len(recording.remarks) == 1


def python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_killed_writer_loses_nothing_it_was_given(tmp_path):
    program = (
        "import os, signal, sys\n"
        "from ddpviz.recording import RankWriter\n"
        "from tests.recording.material import batches\n"
        "writer = RankWriter(sys.argv[1], 0)\n"
        "[writer(batch) for batch in batches(7)]\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert python(program, str(tmp_path)).returncode == -signal.SIGKILL
    recording = load(tmp_path)
    assert same(recording.records(), joined(batches(7)))
    assert recording.remarks == ()


# --- ring and merge ------------------------------------------------------------------------------


def into(ring: Ring, records: np.ndarray) -> None:
    for record in records.tolist():
        ring.write(*record[:-1])


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
    writer = RankWriter(tmp_path, 0, resume=True)
    writer(Batch(0, UNNUMBERED, sent[3].records, (failure,)))
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


# --- save, directory -----------------------------------------------------------------------------


def test_save_and_load_give_the_same_recording(tmp_path):
    recording = Recording()
    for rank in (0, 1):
        sent = batches(300, rank=rank, pid=1)
        for batch in [*sent[:5], *sent[7:], *batches(3, rank=rank, pid=2)]:
            recording.append(batch)
    recording.save(tmp_path / "saved")
    again = load(tmp_path / "saved")
    for rank in (0, 1):
        assert same(again.records(ranks=rank), recording.records(ranks=rank))
        assert again.notes(Plan, rank=rank) == recording.notes(Plan, rank=rank)
        assert again.label(rank, 2) == recording.label(rank, 2) == "allreduce float32 of 2"
    assert again.missing == recording.missing == {0: 2, 1: 2}


def test_save_says_what_memory_had_dropped(tmp_path):
    recording = Recording(bound=500)
    for batch in batches(20):
        recording.append(batch)
    recording.save(tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert same(again.records(), recording.records())
    assert again.remarks == (
        f"{recording.dropped} older records were no longer in memory when it was saved",
    )


def test_with_a_directory_dropped_records_are_on_disk_and_saved(tmp_path):
    sent = batches(20) + batches(5, pid=7)
    recording = Recording(bound=500, directory=tmp_path / "live")
    for batch in sent[:15]:
        recording.append(batch)
    recording.close()
    for batch in sent[15:]:
        recording.append(batch)
    recording.save(tmp_path / "saved")
    assert recording.dropped > 1500
    for place in ("live", "saved"):
        whole = load(tmp_path / place)
        assert len(whole) == len(joined(sent))
        assert same(whole.window(0, 2**62)[-len(recording) :], recording.records())
        assert whole.missing == {}


def test_a_disk_that_refuses_leaves_the_recording_in_memory(tmp_path, caplog):
    recording = Recording(directory=tmp_path / "live")
    sent = batches(4)
    recording.append(sent[0])
    recording.close()
    (tmp_path / "live" / "rank-0000.arrow").unlink()
    (tmp_path / "live" / "rank-0000.arrow").mkdir()  # as good as a full disk: opening it fails
    for batch in sent[1:]:
        recording.append(batch)
    assert same(recording.records(), joined(sent))
    assert len(recording.remarks) == 1 and "in memory only" in recording.remarks[0]


# --- refusals: one sentence each -----------------------------------------------------------------


def refused(error: type[Exception], call, *arguments) -> str:
    with pytest.raises(error) as caught:
        call(*arguments)
    message = str(caught.value)
    assert message.startswith("found ") and "\n" not in message
    return message


def test_load_refuses_what_is_no_recording(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "data.csv").write_text("1,2\n")
    (tmp_path / "file").write_text("x")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "recording.json").write_text('{"tracks": 12}')
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "recording.json").write_text('{"for')
    assert "nothing at" in refused(FileNotFoundError, load, tmp_path / "missing")
    assert "a file at" in refused(NotADirectoryError, load, tmp_path / "file")
    assert "an empty directory at" in refused(ValueError, load, tmp_path / "empty")
    assert "other files at" in refused(ValueError, load, tmp_path / "foreign")
    assert "not ddpviz's" in refused(ValueError, load, tmp_path / "other")
    assert "not ddpviz's" in refused(ValueError, load, tmp_path / "torn")


@pytest.mark.parametrize("kind", ["text", "file format", "other stream"])
def test_load_refuses_a_rank_file_that_is_not_ours(tmp_path, kind):
    path = tmp_path / "rank-0000.arrow"
    table = pa.table({"a": [1, 2]})
    if kind == "text":
        path.write_text("hello")
    elif kind == "file format":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write(table)
    else:
        with pa.ipc.new_stream(path, table.schema) as writer:
            writer.write(table)
    before = path.read_bytes()
    assert "not an Arrow stream that ddpviz wrote" in refused(ValueError, load, tmp_path)
    refused(ValueError, RankWriter, tmp_path, 0)
    assert path.read_bytes() == before


def test_load_refuses_a_newer_version(tmp_path):
    written(tmp_path, batches(1))
    (tmp_path / "recording.json").write_text('{"format": "ddpviz recording", "version": 99}')
    assert "version 99" in refused(ValueError, load, tmp_path)
    (tmp_path / "recording.json").unlink()
    assert len(load(tmp_path)) == 100  # the rank's file says its version itself
    schema = pa.schema([pa.field("begin_ns", pa.int64())], {b"ddpviz": b"99"})
    with pa.ipc.new_stream(tmp_path / "rank-0000.arrow", schema):
        pass
    assert "version 99" in refused(ValueError, load, tmp_path)


def test_nothing_is_written_over_a_recording(tmp_path):
    written(tmp_path, batches(1))
    assert "already" in refused(FileExistsError, Recording().save, tmp_path)
    assert "already" in refused(FileExistsError, Recording, 100, tmp_path)


def test_a_writer_takes_its_own_rank_and_only_while_open(tmp_path):
    writer = RankWriter(tmp_path, 1)
    assert "expected rank 1" in refused(ValueError, writer, Batch(0, 0, rows(1)))
    writer.close()
    with pytest.raises(ValueError, match="rank 1 is closed: make a new one"):
        writer(Batch(1, 0, rows(1, rank=1)))


def test_the_recording_imports_no_torch_and_nothing_that_draws():
    modules = ("torch", "pandas", "bokeh", "IPython", "ipyparallel")
    program = f"import sys, ddpviz.recording; print([m for m in {modules} if m in sys.modules])"
    done = python(program)
    assert done.stdout.strip() == "[]", done.stderr
