"""Every form of a trace is read; everything else is one clear sentence."""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import ddpviz
from ddpviz.traces import TraceError, decoding, read
from ddpviz.traces.columns import Trace
from ddpviz.traces.reading import read_file
from tests.traces.made import event, trace, written


def steps_of(path: Path | list[Path]) -> Any:
    return ddpviz.load(path).steps()[["step", "rank", "step_ms", "buckets", "buffer_broadcasts"]]


EXPECTED = [(number, 0, 1.0, 2, 1) for number in range(3)]


def rows(path: Path | list[Path]) -> list[tuple[Any, ...]]:
    table = steps_of(path)
    table["step_ms"] = table["step_ms"].round(6)
    return [tuple(row) for row in table.itertuples(index=False)]


def zipped(path: Path, content: Any) -> None:
    path.with_suffix(".json.gz").write_bytes(gzip.compress(json.dumps(content).encode()))


def zstd(path: Path, content: Any) -> None:
    data = pa.compress(json.dumps(content).encode(), codec="zstd", asbytes=True)
    path.with_suffix(".json.zst").write_bytes(data)


def indented(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=4))


def marked(path: Path, content: Any) -> None:
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(content).encode())


def as_list(path: Path, content: Any) -> None:
    path.with_name("trace.rank0.json").write_text(json.dumps(content["traceEvents"]))


def changed(change: Callable[[Any], Any]) -> Callable[[Path, Any], None]:
    def write(path: Path, content: Any) -> None:
        for one in content["traceEvents"]:
            one["ts"], one["dur"] = change(one["ts"]), change(one["dur"])
        path.write_text(json.dumps(content))

    return write


def in_ns(path: Path, content: Any) -> None:
    base = content.pop("baseTimeNanoseconds")
    for one in content["traceEvents"]:
        one["ts"], one["dur"] = base + int(one["ts"] * 1000), int(one["dur"] * 1000)
    path.write_text(json.dumps(content))


def of_old(path: Path, content: Any) -> None:
    """Category names and base time as older profilers have them."""
    del content["baseTimeNanoseconds"], content["host_name"]
    for one in content["traceEvents"]:
        one["ts"] += 1_650_000_000_000_000
        one["cat"] = "Operator"
    path.write_text(json.dumps(content))


def with_info_as_text(path: Path, content: Any) -> None:
    content["distributedInfo"] = json.dumps(content["distributedInfo"])
    path.write_text(json.dumps(content))


def with_nan(path: Path, content: Any) -> None:
    content["traceEvents"][0]["args"]["est. achieved occupancy %"] = 12345
    path.write_text(json.dumps(content).replace("12345", "-nan"))


def with_odd_events(path: Path, content: Any) -> None:
    content["traceEvents"] += [None, 3, "x", [], {"ph": 7}, {"ph": "X", "ts": "soon", "name": "x"}]
    content["traceEvents"] += [event("x", 1e300, 1), {"ph": "i", "name": "instant", "ts": 1}]
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "write",
    [
        written, zipped, zstd, indented, marked, as_list, changed(int), changed(str), in_ns, of_old,
        with_info_as_text, with_nan, with_odd_events,
    ],
    ids=lambda write: write.__qualname__,
)  # fmt: skip
def test_every_form_is_read(tmp_path: Path, write: Callable[[Path, Any], Any]) -> None:
    write(tmp_path / "trace.json", trace())
    (path,) = tmp_path.iterdir()
    assert rows(path) == EXPECTED
    assert rows(tmp_path) == EXPECTED  # its directory, too


@pytest.mark.parametrize("write", [written, as_list, in_ns, with_odd_events])
def test_a_large_file_is_decoded_in_blocks(
    tmp_path: Path, write: Callable[[Path, Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace.rank0.json"
    write(path, trace(0))
    at_once, whole = read_file(path), rows(path)
    monkeypatch.setattr(decoding, "_LARGE_BYTES", 1)
    monkeypatch.setattr(decoding, "_BLOCK", 7)
    in_blocks = read_file(path)
    assert isinstance(at_once, Trace) and isinstance(in_blocks, Trace)
    assert rows(path) == whole
    assert (in_blocks.begin_ns == at_once.begin_ns).all()
    assert list(map(in_blocks.text, range(len(in_blocks)))) == list(
        map(at_once.text, range(len(at_once)))
    )
    assert in_blocks.details == at_once.details and len(at_once.details) > 3
    assert in_blocks.left_out == at_once.left_out


def test_times_are_since_the_epoch_to_the_nanosecond(tmp_path: Path) -> None:
    content = trace()
    content["traceEvents"].append(event("ProfilerStep#5", 5106263275736.083, 1.234))
    (found,) = read(written(tmp_path / "trace.json", content)).runs
    (at,) = found.trace.named(lambda name: name == "ProfilerStep#5")
    assert abs(int(found.trace.begin_ns[at]) - (1_700_000_000 * 10**9 + 5106263275736083)) <= 1
    assert found.trace.end_ns[at] - found.trace.begin_ns[at] == 1234


def test_events_that_are_none_are_counted(tmp_path: Path) -> None:
    with_odd_events(tmp_path / "trace.json", trace())
    recording = ddpviz.load(tmp_path / "trace.json")
    assert "7 events of trace.json could not be read and are left out" in recording.remarks


def test_the_rank_is_the_contents_else_the_names_else_asked_for(tmp_path: Path) -> None:
    said = written(tmp_path / "trace.rank1.json", trace(rank=0))
    assert ddpviz.load(said).ranks == [0]
    named = written(tmp_path / "trace.rank_3.json", trace(rank=None))
    assert ddpviz.load(named).ranks == [3]
    neither = written(tmp_path / "trace.json", trace(rank=None))
    with pytest.raises(TraceError, match="found no rank in .*: rename it to say so"):
        ddpviz.load(neither)
    assert ddpviz.load(neither, rank=2).ranks == [2]
    assert ddpviz.load(said, rank=0).ranks == [0]
    with pytest.raises(TraceError, match="found rank 0 in the distributedInfo .* rank=3 that was"):
        ddpviz.load(said, rank=3)
    given = ddpviz.load(named, rank=4)
    assert given.ranks == [4] and "as was given, though its name says 3" in str(given.remarks)
    with pytest.raises(TraceError, match="found rank=1 for several traces"):
        ddpviz.load([said, named], rank=1)
    with pytest.raises(TraceError, match="found rank=1 for several traces"):
        ddpviz.load(tmp_path, rank=1)


def test_two_files_of_one_rank_are_refused(tmp_path: Path) -> None:
    for number in range(2):
        written(tmp_path / f"trace.rank{number}.json", trace(rank=0))
    with pytest.raises(TraceError, match="found rank 0 in .*rank0.json and in .*rank1.json, as"):
        ddpviz.load(tmp_path)
    for number in range(8):
        written(tmp_path / f"trace.rank{number}.json", trace(rank=0))
    with pytest.raises(
        TraceError, match="found rank 0 in all of 8 files, as their distributedInfo"
    ):
        ddpviz.load(tmp_path)


def test_ranks_that_are_not_there_are_said(tmp_path: Path) -> None:
    recording = ddpviz.load(written(tmp_path / "trace.json", trace()))
    assert any("traces of 1 of 2 ranks are here (0)" in one for one in recording.remarks)
    assert set(recording.buckets()["unsplit"]) == {"not every rank is known to have launched it"}


def test_a_directory_leaves_out_what_is_no_trace_and_says_so(tmp_path: Path) -> None:
    written(tmp_path / "trace.json", trace())
    written(tmp_path / "config.json", {"lr": 1})
    (tmp_path / "cut.rank1.json").write_text(json.dumps(trace(1))[:3000])
    recording = ddpviz.load(tmp_path)
    assert recording.ranks == [0]
    assert sum(one.startswith("left out: found") for one in recording.remarks) == 2


WHOLE = json.dumps(trace()).encode()
BROKEN: dict[str, tuple[bytes, str]] = {
    "empty.json": (b"", "found an empty file"),
    "blanks.json": (b"  \n ", "found only blanks"),
    "zeros.json": (bytes(100), "found only blanks or zeros"),
    "cut.json": (WHOLE[: len(WHOLE) // 2], "cut before its end"),
    "cut.json.gz": (gzip.compress(WHOLE)[:-200], "cut or damaged"),
    "cut.json.zst": (pa.compress(WHOLE, codec="zstd", asbytes=True)[:-50], "cut or damaged"),
    "twice.json.gz": (gzip.compress(gzip.compress(WHOLE)), "packed twice"),
    "nothing.json.gz": (gzip.compress(b""), "found nothing inside"),
    "broken.json": (WHOLE.replace(b'"ts"', b"ts", 1), "found broken JSON"),
    "behind.json": (WHOLE + b"x", "found broken JSON"),
    "latin.json": (WHOLE.replace(b"Optimizer", b"\xff\xfe", 1), "found broken JSON"),
    "deep.json": (b'{"traceEvents": [' + b"[" * 100_000, "found "),
    "object.json": (b'{"lr": 1}', "found JSON without traceEvents"),
    "number.json": (b'{"traceEvents": 3}', "no list of events"),
    "null.json": (b'{"traceEvents": null}', "no list of events"),
    "none.json": (b'{"traceEvents": []}', "found no event with a time"),
    "alien.json": (b"[1, 2, 3]", "found no event among the 3 traceEvents"),
    "other.json": (
        json.dumps({"traceEvents": [event("x", 1, 1)], "distributedInfo": {"rank": 0}}).encode(),
        "found no DDP forward, no collective and no profiler step",
    ),
    "utf16.json": ("{}".encode("utf-16"), "text in UTF-16"),
    "nsys.sqlite": (b"SQLite format 3\0" + bytes(100), "an SQLite database, as nsys exports it"),
    "report.nsys-rep": (b"\x01\x02report", "an Nsight report"),
    "trace.perfetto": (b"\x0a\x8f\x01\x12\xff", "Perfetto's own protobuf"),
    "hta.csv": (b"rank,idle\n0,1\n", "a table"),
    "columns.parquet": (b"PAR1" + bytes(10), "a Parquet file"),
    "archive.zip": (b"PK\x03\x04" + bytes(10), "a zip archive"),
    "page.html": (b"<html></html>", "HTML or XML"),
    "program": (b"\x7fELF" + bytes(10), "a program"),
    "text.txt": (b"hello", "found neither JSON nor a pickle"),
    "harmless.pkl": (pickle.dumps({"a": 1}), "without entries"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_trace_is_one_sentence(tmp_path: Path, name: str) -> None:
    content, said = BROKEN[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(TraceError, match=said) as raised:
        ddpviz.load(path)
    assert "\n" not in str(raised.value) and str(path) in str(raised.value)


def test_a_trace_without_ddp_still_has_its_steps(tmp_path: Path) -> None:
    events = [event(f"ProfilerStep#{n}", 1000 * n, 900, "user_annotation") for n in (7, 8)]
    path = written(tmp_path / "trace.rank0.json", {"traceEvents": events})
    recording = ddpviz.load(path)
    assert recording.steps()["step"].tolist() == [7, 8]
    assert any("no forward of DistributedDataParallel" in one for one in recording.remarks)


def test_old_nccl_kernels_are_matched_with_their_launches(tmp_path: Path) -> None:
    events = [
        event("DistributedDataParallel.forward", 0, 100, "user_annotation"),
        event("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 200, 100),
        event("c10d::allreduce_", 210, 50),
        event("record_param_comms", 220, 20, **{"External id": 5, "Collective name": "allreduce",
              "In msg nelems": 1000, "dtype": "Half", "Process Group Name": "0",
              "Process Group Ranks": "[0, 1]"}),
        event("cudaLaunchKernel", 225, 5, "cuda_runtime", correlation=9),
        event("cudaLaunchKernel", 20, 5, "cuda_runtime", correlation=8),
        event("gemm", 60, 40, "kernel", 40, correlation=8),
        event("ncclKernel_AllReduce_RING_LL_Sum_half(ncclDevComm*)", 300, 90, "kernel", 41,
              **{"External id": 5, "correlation": 9}),
    ]  # fmt: skip
    recording = ddpviz.load(written(tmp_path / "trace.rank0.json", {"traceEvents": events}))
    (row,) = recording.collectives().to_dict("records")
    assert (row["op"], row["dtype"], row["bytes"]) == ("allreduce", "float16", 2000)
    assert (row["cause"], row["bucket"]) == ("bucket", 0)
    assert row["duration_ms"] == pytest.approx(0.09)
    assert np.isclose(row["launched_ns"] % 1_000_000, 300_000)
