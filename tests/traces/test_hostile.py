"""Traces that would be lost, hang the reader, be misread or drive a terminal."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ddpviz
from ddpviz.cli.main import main
from ddpviz.traces import TraceError, read
from tests.traces.made import event, trace, written
from tests.views.samples import sample_recording

Captured = pytest.CaptureFixture[str]


def refused(capsys: Captured, *arguments: str | Path) -> str:
    """The one line that the command says."""
    assert main([str(one) for one in arguments]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    return said.err


@pytest.mark.parametrize("command", ["explain", "show"])
def test_what_is_read_is_never_written_over(tmp_path: Path, capsys: Captured, command: str) -> None:
    path = written(tmp_path / "trace.rank0.json", trace())
    before = path.read_bytes()
    (tmp_path / "link.html").symlink_to(path)
    for out in (path, tmp_path / "link.html"):
        assert "which is what is read" in refused(capsys, command, path, "--html", out)
    assert "which is what is read" in refused(capsys, command, tmp_path, "--html", path)
    assert path.read_bytes() == before


def test_a_recordings_own_files_are_never_written_over(tmp_path: Path, capsys: Captured) -> None:
    sample_recording(ranks=2).save(tmp_path / "run")
    file = tmp_path / "run" / "rank-0000.arrow"
    assert "which is what is read" in refused(capsys, "show", tmp_path / "run", "--html", file)
    assert main(["show", str(tmp_path / "run"), "--html", str(tmp_path / "run" / "a.html")]) == 0
    capsys.readouterr()


def test_a_world_that_cannot_be_is_refused(tmp_path: Path) -> None:
    content = trace()
    content["distributedInfo"]["world_size"] = 10**9
    with pytest.raises(TraceError, match="world size of 1000000000"):
        read(written(tmp_path / "trace.json", content))


def test_a_number_that_is_none_is_named_by_its_place(tmp_path: Path) -> None:
    path = tmp_path / "trace.rank0.json"
    path.write_text(json.dumps(trace())[:-1] + ', "baseTimeNanoseconds": 1e400}')
    with pytest.raises(TraceError, match="number out of range at .*baseTimeNanoseconds"):
        read(path)


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "trace.rank0.json")
    with pytest.raises(TraceError, match="found a pipe"):
        read(tmp_path / "trace.rank0.json")


@pytest.mark.parametrize("length", [float("nan"), None, "long", [1], 1e9, -5])
def test_an_event_whose_length_cannot_be_is_left_out_and_counted(
    tmp_path: Path, length: Any
) -> None:
    content = trace()
    reduced = [one for one in content["traceEvents"] if one["name"] == "gloo:all_reduce"]
    for one in reduced:
        one["dur"] = length
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(content).replace("NaN", "nan"))
    recording = ddpviz.load(path)
    said = f"{len(reduced)} events of trace.json could not be read and are left out"
    assert said in recording.remarks
    steps = recording.steps()
    assert steps["hidden_communication_ms"].isna().all()  # and not 0


def test_begins_and_ends_of_their_own_are_read(tmp_path: Path) -> None:
    whole = written(tmp_path / "whole.rank0.json", trace())
    pairs = []
    for one in trace()["traceEvents"]:
        rest = {name: value for name, value in one.items() if name != "dur"}
        pairs += [{**rest, "ph": "B"}, {**rest, "ph": "E", "ts": one["ts"] + one["dur"]}]
    order = sorted(range(len(pairs)), key=lambda at: (pairs[at]["ts"], pairs[at]["ph"] == "B"))
    content = {**trace(), "traceEvents": [pairs[at] for at in order]}
    content["traceEvents"].append({"ph": "E", "pid": 1, "tid": 1, "ts": 1.0})
    paired = written(tmp_path / "paired.rank0.json", content)
    ours, theirs = ddpviz.load(whole), ddpviz.load(paired)
    for field in ("kind", "begin_ns", "end_ns", "cause"):
        assert (np.sort(ours.records()[field]) == np.sort(theirs.records()[field])).all()
    assert "1 events of paired.rank0.json could not be read and are left out" in theirs.remarks


def test_a_name_that_belies_its_content_is_said(tmp_path: Path) -> None:
    recording = ddpviz.load(written(tmp_path / "trace.rank5.json", trace(0)))
    assert recording.ranks == [0]
    said = "trace.rank5.json is of rank 0, as it says inside, though its name says 5"
    assert said in recording.remarks


def test_a_rank_can_be_given_where_nothing_says_it(tmp_path: Path, capsys: Captured) -> None:
    path = written(tmp_path / "trace.json", trace(None))
    assert "found no rank in" in refused(capsys, "explain", path)
    assert main(["explain", str(path), "--rank", "3"]) == 0
    assert "rank 3" in capsys.readouterr().out
    for wrong in (-1, "x", 70_000, True):
        with pytest.raises(ValueError, match="found rank="):
            ddpviz.load(path, rank=wrong)  # type: ignore[arg-type]


def test_what_is_not_there_is_no_recording_that_is_missing(capsys: Captured) -> None:
    assert "found nothing at" in refused(capsys, "explain", "nope.json")


def test_a_terminal_gets_no_orders(tmp_path: Path, capsys: Captured) -> None:
    content = trace()
    evil = "\x1b[31mred\x9b2J\u202e"
    content["traceEvents"] = [
        {**one, "name": f"Optimizer.step#{evil}.step"} if "Optimizer" in one["name"] else one
        for one in content["traceEvents"]
    ]
    path = written(tmp_path / "trace.rank0.json", content)
    for command in ("explain", "show"):
        assert main([command, str(path)]) == 0
        out = capsys.readouterr().out
        assert not set(out) & {"\x1b", "\x9b", "\u202e"}
    broken = tmp_path / f"{evil}.json"
    broken.write_text("{")
    assert not set(refused(capsys, "show", broken)) & {"\x1b", "\x9b", "\u202e"}


def test_traces_and_recordings_are_not_compared(tmp_path: Path, capsys: Captured) -> None:
    path = written(tmp_path / "trace.rank0.json", trace())
    sample_recording(ranks=2).save(tmp_path / "run")
    said = refused(capsys, "explain", path, "--against", tmp_path / "run")
    assert "recordings are told one by one" in said
    page = tmp_path / "page.html"
    said = refused(capsys, "explain", path, "--against", path, "--html", page)
    assert "found --html with --against" in said and not page.exists()


def test_times_that_are_no_numbers_are_said_in_our_words(tmp_path: Path) -> None:
    content = trace()
    for one in content["traceEvents"]:
        one["ts"] = [1, 2]
    with pytest.raises(TraceError, match="found no event with a time"):
        read(written(tmp_path / "trace.json", content))
    assert event("x", 0, 1)["ph"] == "X"


def test_export_says_what_was_left_out(tmp_path: Path, capsys: Captured) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    written(folder / "trace.rank0.json", trace())
    (folder / "other.rank1.json").write_text("{")
    assert main(["export", str(folder), "-o", str(tmp_path / "out.json")]) == 0
    assert "left out" in capsys.readouterr().err
