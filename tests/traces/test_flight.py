"""Dumps of the flight recorder, and pickles that are none."""

from __future__ import annotations

import json
import os
import pickle
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ddpviz
from ddpviz.traces import TraceError
from tests.ranks import run_ranks


def dump(rank: int, world_size: int, folder: str) -> None:
    import torch
    from torch import nn
    from torch._C import _distributed_c10d as c10d
    from torch.nn.parallel import DistributedDataParallel

    ddp = DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)))
    for _ in range(3):
        ddp(torch.randn(4, 8)).sum().backward()
    (Path(folder) / f"fr_rank_{rank}.json").write_bytes(c10d._dump_fr_trace_json())
    (Path(folder) / "pickles").mkdir(exist_ok=True)
    (Path(folder) / f"pickles/nccl_trace_rank_{rank}").write_bytes(c10d._dump_fr_trace())


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dumps")
    run_ranks(dump, 2, str(folder))
    return folder


SENT = (
    ["verify"] * 2 + ["initial_state"] * 2 + ["buffers"] * 2 + ["bucket"]
    + ["rebuild_order"] * 2 + ["buffers"] * 2 + ["bucket"] + ["buffers"] * 2 + ["bucket"]
)  # fmt: skip


def test_the_pickle_tells_why_each_collective_was_issued(dumps: Path) -> None:
    recording = ddpviz.load(dumps / "pickles")
    found = recording.collectives()
    for rank in (0, 1):
        assert found[found["rank"] == rank]["cause"].tolist() == SENT
    assert set(found["bytes"][found["cause"] == "bucket"]) == {(8 * 8 + 8 + 8 + 8) * 4}
    assert (found["launched_ns"] > 1.7e18).all()


def test_its_json_has_the_same_collectives_without_the_reasons(dumps: Path) -> None:
    found, reasons = ddpviz.load(dumps), ddpviz.load(dumps / "pickles")
    columns = ["rank", "sequence", "op", "dtype", "bytes", "launched_ns"]
    assert found.collectives()[columns].equals(reasons.collectives()[columns])
    assert any("its JSON has no frames" in one for one in found.remarks)


def test_what_is_not_over_is_said(dumps: Path) -> None:
    path = dumps / "pickles" / "nccl_trace_rank_0"
    content = pickle.loads(path.read_bytes())
    content["entries"][-1]["retired"] = False
    stuck = dumps / "stuck.rank0.pkl"
    stuck.write_bytes(pickle.dumps(content))
    recording = ddpviz.load(stuck)
    last = recording.collectives().iloc[-1]
    assert last["cause"] == "bucket" and pd.isna(last["done_ns"])
    assert any(
        "rank 0 had launched 1 collectives that were not known to be over: the first is allreduce "
        "float32, number 15"
        in one
        and "graph.py:" in one
        for one in recording.remarks
    )


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch ran",)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_would_run_something_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "dump.rank0.pkl"
    path.write_bytes(pickle.dumps({"entries": [Evil()]}, protocol))
    with pytest.raises(TraceError, match=r"would run \w+\.system"):
        ddpviz.load(path)
    assert not (tmp_path / "ran").exists()


def test_other_pickles_are_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "dump.rank0.pkl"
    for content, said in (
        (pickle.dumps([1, 2]), "without entries"),
        (pickle.dumps({"entries": []}), "found no collective"),
        (pickle.dumps({"entries": [1]})[:-3], "found a broken pickle"),
    ):
        path.write_bytes(content)
        with pytest.raises(TraceError, match=said):
            ddpviz.load(path)


@given(
    st.dictionaries(
        st.sampled_from(
            ["frames", "input_sizes", "input_dtypes", "state", "retired", "profiling_name", "pg_id"]
            + ["collective_seq_id", "time_discovered_completed_ns", "time_created_ns"]
        ),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers(-(2**70), 2**70)
            | st.floats()
            | st.text(max_size=5),
            lambda of: st.lists(of, max_size=3) | st.dictionaries(st.text(max_size=4), of),
            max_leaves=6,
        ),
    ),
    st.text(max_size=6),
)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_an_entry_says_it_is_read_or_refused_in_a_sentence(
    entry: dict[str, Any], ranks: str
) -> None:
    """What a damaged dump, or another version of torch, may have in a field."""
    whole = {"time_created_ns": 10**18, "profiling_name": "nccl:all_reduce", "pg_id": 0}
    dump = {"entries": [whole, {**whole, **entry}], "pg_config": {"0": {"ranks": ranks}}}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "dump_rank0.json"
        path.write_text(json.dumps(dump), encoding="utf-8")
        try:
            recording = ddpviz.load(path)
        except TraceError as error:
            assert "\n" not in str(error) and str(path) in str(error)
            return
        assert recording.ranks == [0] and len(recording.collectives()) >= 1
        recording.waiting()
