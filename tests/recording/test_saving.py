"""Saving a recording, and one that has a directory of its own."""

from __future__ import annotations

from ddpviz.events import Plan
from ddpviz.recording import Recording, load
from tests.recording.material import batches, joined, same


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
