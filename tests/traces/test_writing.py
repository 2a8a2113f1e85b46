"""``ddpviz export``: Chrome's JSON with flows, and back."""

from __future__ import annotations

import collections
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ddpviz
from ddpviz.events import Batch, Cause, Kind
from ddpviz.recording import Recording
from ddpviz.traces import TraceError
from ddpviz.traces.writing import write_chrome
from tests.cli.command import ddpviz as command
from tests.cli.test_errors import assert_one_line
from tests.ranks import run_ranks
from tests.traces.recorded import PARAMETERS
from tests.views.samples import MS, batches_of, sample_recording
from tests.views.test_real_runs import record_modes


def events_of(path: Path) -> list[dict[str, Any]]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    events: list[dict[str, Any]] = json.loads(data)["traceEvents"]
    return events


def test_read_back_it_is_the_same_recording(tmp_path: Path) -> None:
    recording = sample_recording(ranks=3)
    again = ddpviz.load(write_chrome(recording, tmp_path / "run.json.gz"))
    for rank in (0, 1, 2):
        ours = np.sort(recording.records(ranks=rank), order=["begin_ns", "end_ns", "kind"])
        theirs = np.sort(again.records(ranks=rank), order=["begin_ns", "end_ns", "kind"])
        assert (ours == theirs).all()
    assert again.steps().equals(recording.steps())
    assert again.buckets().equals(recording.buckets())
    assert again.plans().equals(recording.plans())


def test_a_process_per_rank_with_nested_rows(own: Path, tmp_path: Path) -> None:
    recording = ddpviz.load([own / f"stack.rank{rank}.json" for rank in (0, 1)])
    events = events_of(write_chrome(recording, tmp_path / "run.json"))
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {0: "rank 0", 1: "rank 1"}
    assert_nested(events)


@pytest.mark.parametrize("mode", ["two_modules", "called_twice", "join", "static_graph"])
def test_rows_are_nested_in_what_ranks_recorded(tmp_path: Path, mode: str) -> None:
    """Also buckets of the same number of two modules, whose backwards overlap."""
    run_ranks(record_modes, 2, str(tmp_path), [mode])
    events = events_of(write_chrome(ddpviz.load(tmp_path / mode), tmp_path / "run.json"))
    assert_nested(events)
    lanes = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    named = {lane for lane in lanes if lane.startswith("bucket 0")}
    assert len(named) == (2 if mode == "two_modules" else 1)


def assert_nested(events: list[dict[str, Any]]) -> None:
    """Perfetto drops what overlaps in a lane."""
    lanes: dict[tuple[int, int], list[tuple[float, float, str]]] = collections.defaultdict(list)
    for one in events:
        if one["ph"] == "X" and one["tid"] != 3:
            span = one["ts"], one["ts"] + one["dur"], f"{one['name']} {one.get('args')}"
            lanes[one["pid"], one["tid"]].append(span)
    for spans in lanes.values():
        open_: list[tuple[float, float, str]] = []
        for span in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_ and open_[-1][1] <= span[0] + 1e-3:
                open_.pop()
            assert not open_ or span[1] <= open_[-1][1] + 1e-3, (open_[-1], span)
            open_.append(span)


def test_flows_go_from_each_gradient_to_its_bucket_to_its_collective(
    own: Path, tmp_path: Path
) -> None:
    recording = ddpviz.load(own / "stack.rank0.json")
    events = events_of(write_chrome(recording, tmp_path / "run.json"))
    slices = [one for one in events if one["ph"] == "X"]

    def at(end: dict[str, Any]) -> list[str]:
        return [
            one["name"] for one in slices
            if one["tid"] == end["tid"] and one["ts"] <= end["ts"] <= one["ts"] + one["dur"]
        ]  # fmt: skip

    flows = collections.defaultdict(dict)
    for one in events:
        if one["ph"] in "sf":
            flows[one["name"], one["id"]][one["ph"]] = one
    to_bucket = [both for (name, _), both in flows.items() if name == "gradient to bucket"]
    to_collective = [both for (name, _), both in flows.items() if name == "bucket to collective"]
    done = recording.records(kinds=Kind.COLLECTIVE_DONE)
    assert len(to_bucket) == PARAMETERS * len(recording.steps())
    assert len(to_collective) == int((done["cause"] == Cause.BUCKET).sum())
    for both in to_bucket:
        assert any("gradient" in name for name in at(both["s"]))
        assert any("fills" in name for name in at(both["f"]))
    for both in to_collective:
        assert any("fills" in name for name in at(both["s"]))
        assert any(name.startswith("allreduce") for name in at(both["f"]))


def test_the_command(own: Path, tmp_path: Path) -> None:
    out = tmp_path / "run.json.gz"
    done = command("export", own / "eager.rank0.json", "-o", out)
    assert done.returncode == 0, done.stderr
    assert ddpviz.load(out).ranks == [0]
    assert_one_line(command("export", own / "eager.rank0.json", "-o", out), "already")
    assert_one_line(command("export", own / "eager.rank0.json", "-o", "x.txt"), "ending in .json")
    told = command("explain", out)
    assert told.returncode == 0 and "rank 0" in told.stdout  # as of the recording itself


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda root: root["ddpviz"].update(version=99), "version 99"),
        (lambda root: root["ddpviz"].update(notes=3), "was changed"),
        (lambda root: root["traceEvents"][3]["args"].update(record=[1]), "was changed"),
    ],
)
def test_a_changed_export_is_one_sentence(tmp_path: Path, change: Any, said: str) -> None:
    path = write_chrome(sample_recording(steps=1), tmp_path / "run.json")
    root = json.loads(path.read_text())
    change(root)
    path.write_text(json.dumps(root))
    with pytest.raises(TraceError, match=said):
        ddpviz.load(path)


def test_as_parquet_every_record_is_a_row_in_words(tmp_path: Path) -> None:
    recording = sample_recording(ranks=3)
    recording.save(tmp_path / "run")
    done = command("export", str(tmp_path / "run"), "-o", str(tmp_path / "run.parquet"))
    assert done.returncode == 0, done.stderr
    table = pd.read_parquet(tmp_path / "run.parquet")
    assert len(table) == len(recording)
    launched = table[table["kind"] == "collective_launched"]
    ours = recording.collectives()
    assert launched.groupby("rank").size().tolist() == ours.groupby("rank").size().tolist()
    assert set(launched["cause"]) == set(ours["cause"])
    buckets = launched[launched["cause"] == "bucket"]
    assert set(buckets["label"]) == {"allreduce float32"}
    records = recording.records(kinds=Kind.COLLECTIVE_LAUNCHED)
    assert sorted(launched["begin_ns"]) == sorted(records["begin_ns"].tolist())


@pytest.mark.parametrize("after", ["first_ready_ns", "launched_ns"])
def test_a_completion_that_was_noted_late_overlaps_nothing(tmp_path: Path, after: str) -> None:
    """The next gradients of the bucket were there before the callback of the one before ran, or it
    was launched again."""
    late, sample = Recording(), sample_recording(steps=4)
    table = sample.buckets(2)
    ready = {(row["rank"], row["bucket"]): int(row[after]) for row in table.to_dict("records")}
    for batch in batches_of(sample):
        records = batch.records
        done = (records["kind"] == Kind.COLLECTIVE_DONE) & (records["cause"] == Cause.BUCKET)
        for at in np.flatnonzero(done & (records["step"] == 1)):
            records["end_ns"][at] = ready[batch.rank, int(records["index"][at])] + MS
        late.append(Batch(batch.rank, 0, records, batch.notes))
    events = events_of(write_chrome(late, tmp_path / "run.json"))
    assert_nested(events)
    fills = [e for e in events if e.get("cat") == "filling" and e["pid"] == 0]
    of_rank = late.buckets()[late.buckets()["rank"] == 0]
    if after == "first_ready_ns":
        assert len(fills) == len(of_rank)
    own = [e for e in events if e["ph"] == "X" and e["pid"] == 0 and "times_ns" in e["args"]]
    ends = {tuple(e["args"]["times_ns"]) for e in own}  # as they were noted
    whole = late.records(kinds=Kind.COLLECTIVE_DONE, ranks=0)
    assert {(int(one["begin_ns"]), int(one["end_ns"])) for one in whole} <= ends
