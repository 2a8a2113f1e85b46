"""Waiting for a rank and transfer are told apart by one clock that sees both, or not at all."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ddpviz import analysis
from ddpviz.events import Cause, Flag, Group, Kind, Module, Plan, Tensor
from tests.analysis.material import (
    EPOCH_NS,
    MemorySource,
    at_ns,
    described,
    hanging,
    step,
)

READY = {3: 20.0, 2: 21.0, 1: 22.0, 0: 23.0}


def late(hosts: tuple[str, ...], flags: int = 0) -> MemorySource:
    """Rank 1 launches 30 ms after rank 0, by their clocks."""
    source = described(hosts=hosts)
    for rank, launched_ms in ((0, 25), (1, 55)):
        done_ms = launched_ms + 0.01 if flags else 60
        step(source, rank, 0, {}, [launched_ms], [done_ms], (56, 61), end_ms=70, flags=flags)
    return source


def test_on_one_host_they_are_told_apart() -> None:
    table = analysis.buckets(late(("a",)))
    assert list(table["wait_for_rank_ms"]) == [30, 0]
    assert list(table["unsplit"]) == ["", ""]


def test_on_several_hosts_there_is_no_common_clock() -> None:
    source = late(("a", "b"))
    table = analysis.buckets(source)
    assert table[["wait_for_rank_ms", "transfer_ms"]].isna().all(axis=None)
    assert table["last_launched_ns"].isna().all() and table["last_rank"].isna().all()
    assert table["done_ns"].notna().all()
    assert set(table["unsplit"]) == {"the ranks' hosts have no common clock"}
    assert "waited" not in analysis.finding(source, 1)
    assert analysis.finding(source, 1).endswith(
        "any waiting included: the ranks' hosts have no common clock"
    )


def test_a_group_within_one_of_several_hosts_has_a_common_clock() -> None:
    source = described((0, 1, 2, 3), hosts=("a", "a", "b", "b"))
    for rank in source.ranks:
        pair = (0, 1) if rank < 2 else (2, 3)
        source.note(rank, Group(1, f"host of {rank // 2}", "gloo", pair))
        source.call(rank, 7, 10 + rank, 20, index=0, group=1)
    table = analysis.buckets(source)
    assert list(table["wait_for_rank_ms"]) == [1, 0, 1, 0]


def test_a_buffer_broadcast_across_hosts_says_that_waiting_is_in_it() -> None:
    source = described(hosts=("a", "b"))
    for rank, launched in ((0, 80), (1, 1)):
        common = {"step": 1, "iteration": 1}
        source.call(rank, 5, launched, 83, Cause.BUFFERS, "broadcast float32", bytes=72, **common)
        source.add(Kind.BUFFER_SYNC, rank, launched, 84, bytes=72, index=2, module=0, **common)
        source.add(Kind.FORWARD, rank, launched, 90, module=0, **common)
        source.add(Kind.STEP, rank, launched, 95, step=1)
    assert analysis.finding(source, 1) == (
        "broadcasting 72 B of buffers took 83 ms before forward on rank 1, any waiting included: "
        "the ranks' hosts have no common clock"
    )


def test_who_never_launched_is_known_across_hosts_as_well() -> None:
    source = hanging(hosts=("a", "b"))
    assert analysis.finding(source, 1) == (
        "rank 0 waits for rank 1, which has not launched allreduce 11 (bucket 1)"
    )


def test_on_cuda_launches_are_marks_and_nothing_is_split() -> None:
    table = analysis.buckets(late(("a",), Flag.ENQUEUED))
    assert table[["wait_for_rank_ms", "transfer_ms"]].isna().all(axis=None)
    assert set(table["last_launched_ns"]) == {at_ns(55)} and set(table["last_rank"]) == {1}
    assert table["unsplit"].str.startswith("on CUDA the host only enqueues it").all()
    assert table["derived"].str.split(",").map(lambda names: "done_ns" in names).all()
    assert not table["derived"].str.contains("wait_for_rank_ms").any()
    assert table.attrs["clipped"] == 0
    assert table["copied_ns"].isna().all()  # finalize did not wait for it


@pytest.mark.parametrize("late_ms", [0, 30])
def test_on_cuda_the_finding_says_what_is_not_known(late_ms: int) -> None:
    source = described()
    for rank in (0, 1):
        begin_ms = 25 + late_ms * rank
        step(
            source, rank, 0, READY, [begin_ms], [begin_ms + 0.01], (56, 56.1), end_ms=70,
            flags=Flag.ENQUEUED,
        )  # fmt: skip
    assert analysis.finding(source, 1) == (
        "exposed communication is not known: on CUDA the host only enqueues collectives, so its "
        "clock does not see when they run"
    )


def test_on_cuda_a_hang_is_still_found() -> None:
    source = hanging(flags=Flag.ENQUEUED)
    assert analysis.finding(source, 1).startswith("rank 0 waits for rank 1")


# --- ids that several groups or modules share ----------------------------------------------------


@pytest.mark.parametrize("group", [254, 255])
def test_collectives_of_groups_that_share_an_id_stay_apart(group: int) -> None:
    """The 255th group and all after it have id 254, and each counts from 0."""
    source = described()
    for rank in (0, 1):
        for made in range(3):
            if group == 254:
                source.note(rank, Group(254, f"group {made}", "gloo", (0, 1)))
            begin_ms = 10 * made + rank
            source.call(rank, 0, begin_ms, 10 * made + 5, group=group, index=made)
    table = analysis.collectives(source)
    assert len(table) == 6 and table["done_ns"].notna().all()
    assert set(table["duration_ms"]) == {5, 4}
    buckets = analysis.buckets(source)
    assert buckets["wait_for_rank_ms"].isna().all()
    assert set(buckets["unsplit"]) == {"its process group shares its id with others"}


def test_a_group_whose_number_a_record_cannot_hold_breaks_nothing() -> None:
    """A session that began again often enough: the note has the number, the record has none."""
    source = described()
    for rank in (0, 1):
        source.note(rank, Group(300, "late", "gloo", (0, 1)))
        source.call(rank, 0, 10 + rank, 20, group=255, index=0)
    assert len(analysis.buckets(source)) == 2


def test_buckets_of_modules_that_share_an_id_are_left_out_and_the_finding_says_so() -> None:
    source = described((0,), 1)
    for made, begin_ms in enumerate((0, 100)):
        tensors = (Tensor(f"of module {made}", (25,), "float32", 100),)
        source.note(0, Module(254, "Net", tensors, (), ()))
        source.note(0, Plan(254, 0, 0, EPOCH_NS, "construction", ()))
        common = {"module": 254, "iteration": 0, "step": made}
        source.add(Kind.FORWARD, 0, begin_ms, begin_ms + 10, **common)
        source.call(0, made, begin_ms + 20, begin_ms + 22, index=0, bytes=100, **common)
        source.add(Kind.FINALIZE, 0, begin_ms + 21, begin_ms + 25, **common)
        source.add(Kind.STEP, 0, begin_ms, begin_ms + 30, step=made)
    assert analysis.buckets(source).empty
    table = analysis.steps(source)
    assert list(table["buckets"]) == [1, 1] and list(table["bucket_bytes"]) == [100, 100]
    assert list(table["exposed_communication_ms"]) == [4, 4]
    assert np.isnan(table["hidden_communication_ms"]).all()
    assert list(table["plan_version"]) == [-1, -1]
    assert "share an id" in analysis.finding(source, 1)
    assert pd.isna(analysis.overlap(source)["hidden_ms"]).all()
