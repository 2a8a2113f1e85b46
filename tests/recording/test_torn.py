"""Files that were cut off, damaged, or that the disk refused: what is whole is read."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import resource
import signal
from collections.abc import Iterator

import numpy as np
import pytest

from ddpviz.events import (
    RECORD,
    Batch,
    Ended,
    Failure,
    Kind,
    Plan,
    Process,
    Unavailable,
    note_to_json,
)
from ddpviz.recording import RankWriter, load
from ddpviz.recording.attachments import UNNUMBERED
from ddpviz.recording.reading import read_directory
from tests.recording.material import (
    EPOCH_NS,
    batches,
    joined,
    plan,
    process,
    python,
    same,
    written,
)
from tests.views.samples import sample_recording


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
    notes = [note for batch in sent for note in batch.notes]
    ends = np.cumsum([len(line) for line in data.splitlines()]) + range(len(notes))
    assert len(notes) == 6
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        recording = load(tmp_path)
        assert same(recording.records(), joined(sent)), cut
        found = [note for kind in dict.fromkeys(map(type, notes)) for note in recording.notes(kind)]
        assert found == notes[: int((ends <= cut).sum())], cut


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


@contextlib.contextmanager
def files_end_at(limit_bytes: int) -> Iterator[None]:
    """No file grows beyond this: as good as a full disk, for it fails in the middle of a write."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("refused", [0, 1, 2])
def test_a_write_that_the_disk_refuses_costs_that_batch_alone(tmp_path, refused):
    """The first one too, which has the schema without which nothing after it can be read."""
    sent = [dataclasses.replace(batch, notes=()) for batch in batches(5)]
    path = tmp_path / "rank-0000.arrow"
    writer = RankWriter(tmp_path, 0)
    for number, batch in enumerate(sent):
        if number != refused:
            writer(batch)
            continue
        before = path.read_bytes()
        with files_end_at(len(before) + 10), pytest.raises(OSError):
            writer(batch)
        assert path.read_bytes() == before
    writer.close()
    kept = joined([batch for number, batch in enumerate(sent) if number != refused])
    recording = load(tmp_path)
    assert same(recording.records(kinds=range(48)), kept)
    assert recording.missing == {0: 1}
    written(tmp_path, batches(1, pid=900, begin_ns=EPOCH_NS + 10**9))  # continues the file
    assert same(load(tmp_path).records(kinds=range(48))[: len(kept)], kept)


def test_a_file_that_has_lost_all_is_said_and_nothing_follows_from_it(tmp_path):
    recording = sample_recording(steps=3)
    recording.save(tmp_path / "run")
    for rank in (0, 1):
        notes = tmp_path / "run" / f"rank-{rank:04}.notes.jsonl"
        ended = Ended(rank, 1)
        with notes.open("a") as file:
            file.write(json.dumps({**note_to_json(ended), "batch": [0, 0]}) + "\n")
    (tmp_path / "run" / "rank-0001.arrow").write_bytes(b"")
    again = load(tmp_path / "run")
    said = "rank-0001.arrow is empty: its records, but for what a ring has, of rank 1 are missing"
    assert said in again.remarks
    assert [one for one in again.audit() if one.kind == "step-counts"] == []


def ended_run(directory, count=5):
    """Batches of a rank, the last with its end; and where each of them ends in the file."""
    sent = batches(count, size=6)
    sent[-1] = dataclasses.replace(sent[-1], notes=(*sent[-1].notes, Ended(0, 1)))
    writer, ends = RankWriter(directory, 0), []
    for batch in sent:
        writer(batch)
        ends.append((directory / "rank-0000.arrow").stat().st_size)
    writer.close()
    return sent, ends


def test_a_file_cut_between_two_batches_is_known_to_be_cut(tmp_path):
    _, ends = ended_run(tmp_path)
    path = tmp_path / "rank-0000.arrow"
    whole = path.read_bytes()
    assert not load(tmp_path).remarks and not load(tmp_path).notes(Unavailable)
    for end in (0, *ends[:-1]):
        path.write_bytes(whole[:end])
        cut = load(tmp_path)
        assert (
            len(cut.remarks) == 1
            and "records, but for what a ring has, of rank 0" in (cut.remarks[0])
        )
        assert [note.what for note in cut.notes(Unavailable)] == ["records"]


def test_a_notes_file_that_lost_lines_is_known_to_have(tmp_path):
    sent, _ = ended_run(tmp_path)
    path = tmp_path / "rank-0000.notes.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) > 3
    for keep, batches_without in (
        (b"", "3 batches"),
        (b"".join(lines[:-1]), "a batch"),
        (b"".join(lines[1:]), "a batch"),
    ):
        path.write_bytes(keep)
        cut = load(tmp_path)
        assert same(cut.records(), joined(sent))
        assert [note.what for note in cut.notes(Unavailable)] == ["notes"]
        assert cut.remarks == (
            f"rank-0000.notes.jsonl has not all notes of {batches_without}: "
            "names or plans may lack",
        )
    path.unlink()
    assert [note.what for note in load(tmp_path).notes(Unavailable)] == ["notes"]


def test_a_damaged_batch_is_left_out_and_the_others_read(tmp_path):
    sent, ends = ended_run(tmp_path)
    path = tmp_path / "rank-0000.arrow"
    whole = bytearray(path.read_bytes())
    random = np.random.default_rng(5)
    left_out = 0
    for _ in range(300):
        at = int(random.integers(ends[1], ends[2]))  # in the third batch
        changed = bytearray(whole)
        changed[at] ^= 1 << int(random.integers(8))
        path.write_bytes(changed)
        try:
            found = load(tmp_path)
        except ValueError as error:
            assert "rank-0000.arrow" in str(error)
            continue
        rest = [batch for number, batch in enumerate(sent) if number != 2]
        records = found.records()
        records = records[records["kind"] != Kind.GAP]
        if same(records, joined(sent)):
            continue  # a byte that nothing depends on
        if same(records, joined(rest)):
            left_out += 1
        else:
            assert same(records, joined(sent[:2]))  # it could not be read on
        assert any("rank-0000.arrow" in remark for remark in found.remarks)
        assert [note.what for note in found.notes(Unavailable)] == ["records"]
    assert left_out > 50


def test_notes_that_are_written_while_records_are_read_are_read(tmp_path):
    """Both files grow: a batch whose notes came after the notes were read has them all the same."""
    sent = batches(4, size=6)
    writer = RankWriter(tmp_path, 0)
    writer(sent[0])
    remarks = []
    reads = read_directory(tmp_path, remarks)
    later = dataclasses.replace(sent[1], notes=(plan(0),))
    first = next(reads)
    writer(later)
    rest = list(reads)
    writer.close()
    assert [read.batch.notes for read in (first, *rest)][-1] == (plan(0),) and not remarks


def test_what_came_outside_the_numbering_shares_its_place_and_lacks_nothing(tmp_path):
    """A killed rank's ring, and then that it failed, as a session writes them."""
    sent, _ = ended_run(tmp_path)
    writer = RankWriter(tmp_path, 0)
    ring = sent[0].records.copy()
    ring["begin_ns"] += 10**12
    writer.write(Batch(0, UNNUMBERED, ring), 0)
    failure = Failure(0, 3, EPOCH_NS + 10**12, "killed", "")
    writer.write(Batch(0, UNNUMBERED, np.empty(0, RECORD), (failure,)), 0)
    writer.close()
    found = load(tmp_path)
    assert found.remarks == () and found.notes(Unavailable) == []
    assert [note.message for note in found.notes(Failure)] == ["killed"]


def test_a_writer_that_continues_keeps_a_damaged_batch_and_what_is_behind_it(tmp_path):
    sent, ends = ended_run(tmp_path)
    path = tmp_path / "rank-0000.arrow"
    data = bytearray(path.read_bytes())
    at = max(at for at in range(ends[-1] - 120, ends[-1]) if data[at])
    data[at] ^= 1
    path.write_bytes(data)
    assert same(
        load(tmp_path).records(kinds=[kind for kind in Kind if kind != Kind.GAP]),
        joined(sent[:-1]),
    )
    RankWriter(tmp_path, 0).close()
    assert path.read_bytes()[: len(data)] == bytes(data)
