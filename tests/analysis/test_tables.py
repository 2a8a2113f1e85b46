"""Arithmetic of the tables on records made by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ddpviz import analysis
from ddpviz.analysis.naming import collective_name
from ddpviz.events import Cause, Flag, Group, Kind
from tests.analysis.material import NAMES, MemorySource, at_ns, described, step

TABLES = {
    "steps": analysis.steps,
    "buckets": analysis.buckets,
    "collectives": analysis.collectives,
    "buffers": analysis.buffers,
    "overlap": analysis.overlap,
    "plans": analysis.plans,
}


def two_ranks(world_size: int = 2, ranks: tuple[int, ...] = (0, 1)) -> MemorySource:
    """Iteration 1: bucket 1 of both ranks fills first; rank 1 is 30 ms later in bucket 0."""
    source = described(ranks, world_size)
    for rank, late in ((0, 0), (1, 30)):
        if rank in ranks:
            step(
                source, rank, 0.0,
                ready_ms={1: 11, 0: 12, 3: 20 + late, 2: 25 + late},
                launched_ms=[25 + late, 26 + late], done_ms=[60, 61 + rank],
                finalize_ms=(30 + late, 65), buffers_ms=(1, 3), end_ms=70,
            )  # fmt: skip
    return source


@pytest.mark.parametrize("name", TABLES)
def test_without_records_a_table_has_its_columns_and_types(name: str) -> None:
    empty, full = TABLES[name](MemorySource(ranks=())), TABLES[name](two_ranks())
    assert len(empty) == 0 and len(full) > 0
    assert list(empty.columns) == list(full.columns)
    assert list(empty.dtypes) == list(full.dtypes)


@pytest.mark.parametrize("name", [name for name in TABLES if name != "plans"])
def test_one_step_is_the_same_rows_as_in_the_whole(name: str) -> None:
    source = two_ranks()
    for rank in (0, 1):
        step(source, rank, 100.0, {3: 120, 2: 121}, [122], [130], (125, 131), 2, 12, end_ms=140)
    table = TABLES[name]
    whole = table(source)
    for number in (1, 2):
        expected = whole[whole["step"] == number].reset_index(drop=True)
        pd.testing.assert_frame_equal(table(source, number), expected)


@pytest.mark.parametrize("name", [name for name in TABLES if name != "plans"])
def test_a_step_that_was_not_recorded_is_an_error_not_an_empty_table(name: str) -> None:
    source = two_ranks()
    with pytest.raises(ValueError, match="found no step 999 in the recording, expected 1"):
        TABLES[name](source, 999)
    with pytest.raises(ValueError, match="found no step 0 in the recording: it has none yet"):
        TABLES[name](MemorySource(ranks=()), 0)


def test_a_bucket_has_its_marks_and_stretches() -> None:
    table = analysis.buckets(two_ranks())
    assert len(table) == 4
    row = table[(table["rank"] == 0) & (table["bucket"] == 0)].iloc[0]
    marks = ["first_ready_ns", "full_ns", "launched_ns", "last_launched_ns", "done_ns"]
    assert [row[mark] for mark in marks] == [at_ns(ms) for ms in (20, 25, 25, 55, 60)]
    assert row["copied_ns"] == at_ns(65)
    assert (row["filling_ms"], row["head_of_line_ms"]) == (5, 0)
    assert (row["wait_for_rank_ms"], row["transfer_ms"]) == (30, 5)
    assert (row["last_parameter"], row["last_rank"]) == (NAMES[2], 1)
    assert (row["bytes"], row["parameters"], row["sequence"]) == (200, 2, 10)
    assert row["plan_version"] == 1
    assert row["derived"] == "full_ns,turn_ns,copied_ns,head_of_line_ms,launch_delay_ms"
    assert table.attrs["clipped"] == 0


def test_a_full_bucket_waits_for_its_turn() -> None:
    table = analysis.buckets(two_ranks())
    row = table[(table["rank"] == 0) & (table["bucket"] == 1)].iloc[0]
    assert row["full_ns"] == at_ns(12) and row["launched_ns"] == at_ns(26)
    # Its turn comes when bucket 0 was launched, at 25 ms: what follows is no waiting in line.
    assert row["turn_ns"] == at_ns(25)
    assert (row["head_of_line_ms"], row["launch_delay_ms"]) == (13, 1)


def test_the_last_rank_to_arrive_waits_for_nobody() -> None:
    table = analysis.buckets(two_ranks())
    late = table[table["rank"] == 1]
    assert list(late["wait_for_rank_ms"]) == [0, 0]
    assert list(late["last_rank"]) == [1, 1]
    assert list(late["transfer_ms"]) == [5, 6]


@pytest.mark.parametrize(("ranks", "world_size"), [((0,), 2), ((0, 1), 3)])
def test_the_wait_is_unknown_where_a_rank_is_missing(
    ranks: tuple[int, ...], world_size: int
) -> None:
    table = analysis.buckets(two_ranks(world_size, ranks))
    assert table["wait_for_rank_ms"].isna().all() and table["transfer_ms"].isna().all()
    assert table["last_rank"].isna().all()
    assert table["done_ns"].notna().all()


def test_a_group_of_one_rank_never_waits() -> None:
    table = analysis.buckets(two_ranks(1, (0,)))
    assert list(table["wait_for_rank_ms"]) == [0, 0]


def test_ranks_may_number_their_steps_differently() -> None:
    source = described()
    for rank, number in ((0, 4), (1, 9)):
        step(source, rank, 0.0, {}, [25 + rank], [30], (27, 31), number, end_ms=40)
    table = analysis.buckets(source, step=4)
    assert list(table["wait_for_rank_ms"]) == [1]


def test_a_launch_recorded_after_its_completion_is_cut_and_counted() -> None:
    source = described()
    step(source, 0, 0.0, {}, [25], [30], (27, 31), end_ms=40)
    step(source, 1, 0.0, {}, [33], [36], (34, 37), end_ms=40)
    table = analysis.buckets(source)
    assert table.attrs["clipped"] == 1
    row = table[table["rank"] == 0].iloc[0]
    assert (row["wait_for_rank_ms"], row["transfer_ms"]) == (5, 0)
    assert {"last_launched_ns", "wait_for_rank_ms", "transfer_ms"} <= set(row["derived"].split(","))


def test_different_operations_with_the_same_number_do_not_match() -> None:
    source = described()
    source.call(0, 7, 10, 20, index=0)
    source.call(1, 7, 15, 20, op="broadcast float32", cause=Cause.USER)
    row = analysis.buckets(source).iloc[0]
    assert pd.isna(row["last_launched_ns"]) and np.isnan(row["wait_for_rank_ms"])


def test_a_shadow_of_a_joined_rank_is_an_arrival() -> None:
    source = described()
    source.call(0, 7, 10, 30, index=0)
    source.call(1, 7, 25, 30, cause=Cause.JOIN)
    table = analysis.buckets(source)
    assert len(table) == 1
    assert table.iloc[0]["wait_for_rank_ms"] == 15 and table.iloc[0]["last_rank"] == 1


def test_a_killed_rank_leaves_a_collective_without_an_end() -> None:
    source = described()
    step(source, 0, 0.0, {3: 20, 2: 21, 1: 22, 0: 23}, [21, 23], [24, None], None)
    step(source, 1, 0.0, {}, [21], [24], None)
    row = analysis.buckets(source).query("rank == 0 and bucket == 1").iloc[0]
    assert pd.isna(row["done_ns"]) and pd.isna(row["copied_ns"])
    assert np.isnan(row["wait_for_rank_ms"]) and row["last_rank"] == 1
    lost = analysis.collectives(source).query("rank == 0 and sequence == 11").iloc[0]
    assert pd.isna(lost["done_ns"]) and np.isnan(lost["duration_ms"])
    steps = analysis.steps(source)
    assert steps["step_ms"].isna().all() and steps["optimizer_ms"].isna().all()
    assert steps["exposed_communication_ms"].isna().all()
    assert list(steps["forward_ms"]) == [10, 10]


def test_a_failed_collective_never_completed() -> None:
    source = described()
    source.call(0, 7, 10, 20, index=0, flags=Flag.FAILED)
    assert pd.isna(analysis.collectives(source).iloc[0]["done_ns"])
    assert pd.isna(analysis.buckets(source).iloc[0]["done_ns"])


def test_a_completion_without_its_launch_is_a_collective_too() -> None:
    """The oldest records may be gone; a completion repeats when its launch was."""
    source = described()
    common = {"sequence": 7, "cause": Cause.BUCKET, "group": 0, "module": 0, "index": 0}
    source.add(Kind.COLLECTIVE_DONE, 0, 10, 20, step=1, **common)
    table = analysis.collectives(source)
    assert list(table["launched_ns"]) == [at_ns(10)] and list(table["duration_ms"]) == [10]


def test_a_hooks_bucket_lasts_from_its_first_to_its_last_collective() -> None:
    source = described()
    for rank, late in ((0, 0), (1, 2)):
        for number, (launched, done) in enumerate([(10, 20), (21, 40)]):
            source.call(
                rank, 7 + number, launched + late, done, index=0, iteration=1, step=1,
                flags=Flag.FROM_HOOK,
            )  # fmt: skip
    row = analysis.buckets(source).iloc[0]
    assert (row["launched_ns"], row["done_ns"]) == (at_ns(10), at_ns(40))
    assert (row["wait_for_rank_ms"], row["transfer_ms"], row["sequence"]) == (2, 28, 7)
    assert len(analysis.buckets(source)) == 2


def test_a_hook_that_goes_on_makes_the_end_a_bound() -> None:
    source = described((0,), 1)
    source.call(0, 7, 10, 20, index=0, flags=Flag.FROM_HOOK)
    source.call(0, 8, 21, 30, index=-1, flags=Flag.FROM_HOOK | Flag.INFERRED)
    table = analysis.buckets(source)
    assert len(table) == 1
    assert {"done_ns", "transfer_ms"} <= set(table.iloc[0]["derived"].split(","))


def test_ready_times_that_are_absent_are_unknown_not_zero() -> None:
    source = described()
    step(source, 0, 0.0, {}, [25], [30], (27, 31), end_ms=40)
    row = analysis.buckets(source).iloc[0]
    assert pd.isna(row["first_ready_ns"]) and pd.isna(row["full_ns"])
    assert np.isnan(row["filling_ms"]) and np.isnan(row["head_of_line_ms"])
    assert row["last_parameter"] == "" and row["derived"] == "copied_ns"


def test_a_bucket_that_was_never_launched_has_a_row_without_marks() -> None:
    """An unused parameter without find_unused_parameters: the Reducer waits for ever."""
    source = described((0,), 1)
    step(source, 0, 0.0, {3: 20, 1: 21, 0: 22}, [], [], None, end_ms=40)
    table = analysis.buckets(source)
    assert table["launched_ns"].isna().all()
    assert list(table["full_ns"].isna()) == [True, False]
    assert analysis.finding(source, 1) == (
        "rank 0 never launched bucket 0: not all of its 2 parameters got a gradient"
    )


def test_a_bucket_that_was_skipped_has_no_row() -> None:
    """skip_all_reduce_unused_params: finalize ended, so nothing is missing."""
    source = described((0,), 1)
    step(source, 0, 0.0, {3: 20, 2: 20, 1: 21, 0: 22}, [22], [25], (23, 26), end_ms=40)
    assert list(analysis.buckets(source)["bucket"]) == [0]


def test_the_plan_is_the_one_of_the_iteration() -> None:
    source = described((0,), 1)
    source.call(0, 1, 10, 12, index=0, iteration=0, step=0)
    for bucket in (0, 1):
        source.call(0, 2 + bucket, 20 + bucket, 23, index=bucket, iteration=5, step=1)
    table = analysis.buckets(source)
    assert list(table["plan_version"]) == [0, 1, 1]
    assert list(table["bytes"]) == [400, 200, 200]
    assert list(table["parameters"]) == [4, 2, 2]


def test_without_a_plan_a_bucket_is_what_was_sent() -> None:
    source = MemorySource((0,))
    source.call(0, 1, 10, 12, index=3, bytes=77)
    row = analysis.buckets(source).iloc[0]
    assert (row["bytes"], row["parameters"], row["plan_version"]) == (77, 0, -1)


def test_two_modules_keep_their_buckets_apart() -> None:
    source = described((0,), 1)
    for module in (0, 1):
        source.call(0, module, 10 + module, 20, index=0, module=module, iteration=3)
        source.add(Kind.FINALIZE, 0, 15, 30, module=module, iteration=3, step=0)
    assert list(analysis.buckets(source)["module"]) == [0, 1]
    steps = analysis.steps(source)
    # Their finalizes cover the same 15 ms, their communication the 5 before: counted once.
    assert list(steps["exposed_communication_ms"]) == [15]
    assert list(steps["hidden_communication_ms"]) == [5]
    assert list(steps["buckets"]) == [2]


def test_a_step_sums_what_happened_in_it() -> None:
    steps = analysis.steps(two_ranks())
    assert list(steps["rank"]) == [0, 1] and list(steps["step"]) == [1, 1]
    first = steps.iloc[0]
    assert (first["begin_ns"], first["step_ms"]) == (at_ns(0), 70)
    assert (first["forward_ms"], first["backward_ms"], first["optimizer_ms"]) == (10, 55, 1)
    # Launched at 25, finalize from 30 to 65, buffer sync from 1 to 3.
    assert first["hidden_communication_ms"] == 5
    assert first["exposed_communication_ms"] == 37
    assert (first["buckets"], first["bucket_bytes"], first["plan_version"]) == (2, 400, 1)


def test_overlap_is_what_ddps_logger_defines() -> None:
    table = analysis.overlap(two_ranks())
    row = table[table["rank"] == 0].iloc[0]
    assert row["backward_compute_ms"] == 30 - 9
    assert row["backward_comm_ms"] == 65 - 25
    assert row["backward_compute_comm_overlap_ms"] == row["hidden_ms"] == 30 - 25
    assert row["exposed_ms"] == 65 - 30
    late = table[table["rank"] == 1].iloc[0]
    assert late["hidden_ms"] == 60 - 55


def test_buffers_tell_every_forward() -> None:
    source = described((0,), 1)
    for iteration, flags in enumerate([0, Flag.NO_SYNC, Flag.NO_GRAD]):
        begin = 20.0 * iteration
        common = {"step": 0, "iteration": iteration, "module": 0}
        source.add(Kind.FORWARD, 0, begin, begin + 10, flags=flags, **common)
    for launched in (1, 2):
        source.call(0, launched, launched, 3, Cause.BUFFERS, "broadcast float32", bytes=36)
    source.add(Kind.BUFFER_SYNC, 0, 1, 4, bytes=72, index=2, step=0, iteration=0, module=0)
    # What a joined rank shadows after its last forward belongs to no forward.
    source.add(Kind.BUFFER_SYNC, 0, 80, 90, bytes=72, index=2, step=0, iteration=2, module=0)
    source.call(0, 9, 81, 85, Cause.BUFFERS, "broadcast float32", bytes=36, iteration=2)
    table = analysis.buffers(source)
    assert list(table["fired"]) == [True, False, False]
    assert list(table["broadcasts"]) == [2, 0, 0]
    assert list(table["bytes"]) == [72, 0, 0]
    assert list(table["sync_ms"]) == [3, 0, 0]
    assert list(table["no_sync"]) == [False, True, False]
    assert list(table["no_grad"]) == [False, False, True]
    assert list(analysis.steps(source)["exposed_communication_ms"].isna()) == [True]


def test_collectives_outside_any_step_make_no_step() -> None:
    source = described((0,), 1)
    source.call(0, 0, 1, 2, Cause.VERIFY, "allgather int64", step=-1, iteration=-1)
    assert len(analysis.steps(source)) == 0
    row = analysis.collectives(source).iloc[0]
    assert (row["cause"], row["op"], row["dtype"]) == ("verify", "allgather", "int64")


def test_a_collective_is_called_by_its_operation_number_and_cause() -> None:
    source = described((0,), 1)
    source.call(0, 7, 10, 20, index=2)
    source.call(0, 8, 10, 20, index=-1)
    source.call(0, 9, 10, 20, Cause.INITIAL_STATE, "broadcast int64")
    source.call(0, 10, 10, 20, 77, "")  # type: ignore[arg-type]
    records = source.records(kinds=Kind.COLLECTIVE_LAUNCHED)
    assert [collective_name(source, record) for record in records] == [
        "allreduce 7 (bucket 2)",
        "allreduce 8 (bucket)",
        "broadcast 9 (initial state)",
        "collective 10 (cause 77)",
    ]


def test_a_group_made_again_is_another_group() -> None:
    """After a restart numbers begin anew; the rank whose old records are lost must not shift."""
    source = described()
    for rank in (0, 1):
        source.note(rank, Group(1, "default", "gloo", (0, 1)))
    source.call(0, 0, 10, None, index=0, step=0)  # rank 1 died and left nothing of the old group
    for rank in (0, 1):
        source.call(rank, 0, 1000 + rank, 1010, index=0, iteration=1, step=1, group=1)
    table = analysis.buckets(source)
    assert list(table["wait_for_rank_ms"].fillna(-1)) == [-1, 1, 0]


def test_plans_name_their_parameters() -> None:
    table = analysis.plans(described())
    assert list(table["version"]) == [0, 1, 1]
    assert list(table["bucket"]) == [0, 0, 1]
    assert list(table["limit_bytes"].isna()) == [True, False, False]
    assert table.iloc[2]["parameter_names"] == (NAMES[1], NAMES[0])
    assert list(table["reason"]) == ["construction", "rebuild", "rebuild"]


def test_after_a_rebuild_whose_plan_was_lost_no_older_plan_is_taken() -> None:
    """A rank killed soon after the rebuild: its ring has the record, its notes are gone."""
    source = described((0,), 1)
    source.add(Kind.REBUILD, 0, 5, 6, iteration=3, index=2, module=0, step=3)
    for iteration in (2, 3):
        source.call(0, iteration, 10, 12, index=0, iteration=iteration, step=iteration, bytes=50)
    table = analysis.buckets(source)
    assert list(table["plan_version"]) == [1, -1]
    assert list(table["bytes"]) == [200, 50]
    assert list(analysis.steps(source)["bucket_bytes"]) == [200, 50]


def test_an_operation_whose_label_was_lost_matches_by_its_number() -> None:
    source = described()
    source.call(0, 7, 10, 20, index=0)
    source.call(1, 7, 15, 20, index=0, op="")
    assert list(analysis.buckets(source)["wait_for_rank_ms"]) == [5, 0]


def test_a_rank_whose_group_is_not_described_is_not_called_absent() -> None:
    source = MemorySource()
    source.note(0, Group(0, "default", "gloo", (0, 1)))
    source.call(0, 7, 10, None, index=0)
    source.call(1, 7, 15, None, index=0)
    assert analysis.buckets(source)["last_rank"].isna().all()
