"""Facts of the tables of real two-rank gloo runs, in the modes in which DDP differs."""

from __future__ import annotations

import re
import time
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ddpviz import analysis
from ddpviz.analysis.evidence import gather
from ddpviz.events import Batch, Cause, Kind
from ddpviz.recording import Recording
from tests.fidelity import scenarios
from tests.ranks import run_ranks

MODES = [mode for mode in scenarios.MODES if mode not in ("bucket_view", "builtin_hook")]
STEPS = 8
#: The step that rank 1 enters late, and by how much.
LATE_STEP, LATE_S = 5, 0.4


def record(rank: int, world_size: int) -> dict[str, Any]:
    """Each mode recorded as batches, and what DDP's logger said after each step."""
    from ddpviz.probe import Recorder

    outcome = {}
    for mode in MODES:
        batches: list[bytes] = []
        recorder = Recorder(sinks=[lambda batch, to=batches: to.append(batch.to_bytes())])
        recorder.install()
        modules = scenarios.build(mode)
        modules[0]._set_ddp_runtime_logging_sample_rate(1)
        logged = []
        # Within Join the steps have to be one loop.
        for first, count in [(0, STEPS)] if mode == "join" else [(n, 1) for n in range(STEPS)]:
            scenarios.train(mode, rank, modules, count, first)
            logged.append(dict(modules[0]._get_ddp_logging_data()))
        recorder.close()
        outcome[mode] = {"batches": batches, "logged": logged}
    outcome["late"] = {"batches": record_late(rank)}
    return outcome


def record_late(rank: int) -> list[bytes]:
    """A run without buffer broadcasts in which rank 1 is slow between one forward and backward."""
    from ddpviz.probe import Recorder

    batches: list[bytes] = []
    recorder = Recorder(sinks=[lambda batch: batches.append(batch.to_bytes())])
    recorder.install()
    modules = scenarios.build("no_buffers")
    forward = modules[0].module.forward

    def slow(*args: Any) -> Any:
        result = forward(*args)
        time.sleep(LATE_S if rank == 1 else 0)  # the slow rank itself, not a wait for another
        return result

    scenarios.train("no_buffers", rank, modules, LATE_STEP)
    modules[0].module.forward = slow
    scenarios.train("no_buffers", rank, modules, 1, LATE_STEP)
    modules[0].module.forward = forward
    scenarios.train("no_buffers", rank, modules, 2, LATE_STEP + 1)
    recorder.close()
    return batches


@pytest.fixture(scope="module")
def outcomes() -> list[dict[str, Any]]:
    return run_ranks(record, 2)


@pytest.fixture(scope="module")
def recordings(outcomes: list[dict[str, Any]]) -> dict[str, Recording]:
    return {mode: recording_of(mode, outcomes) for mode in [*MODES, "late"]}


def recording_of(mode: str, outcomes: list[dict[str, Any]]) -> Recording:
    recording = Recording()
    for outcome in outcomes:
        for batch in outcome[mode]["batches"]:
            recording.append(Batch.from_bytes(batch))
    return recording


@pytest.mark.parametrize("mode", MODES)
def test_every_step_of_every_rank_is_a_row(recordings: dict[str, Recording], mode: str) -> None:
    table = analysis.steps(recordings[mode])
    ranks = {rank: STEPS + (rank if mode == "join" else 0) for rank in (0, 1)}
    if mode == "two_modules":  # one optimizer steps both, but a synced backward ends a step
        ranks = {rank: table["rank"].eq(rank).sum() for rank in (0, 1)}
        assert ranks[0] == ranks[1]
    for rank, count in ranks.items():
        assert list(table[table["rank"] == rank]["step"]) == list(range(count))
    parts = table["forward_ms"] + table["backward_ms"] + table["optimizer_ms"]
    assert (parts <= table["step_ms"] * 1.0001).all()
    assert (table["exposed_communication_ms"] >= 0).all()
    assert (table["hidden_communication_ms"] >= 0).all()


def test_steps_count_broadcasts_buckets_and_bytes(recordings: dict[str, Recording]) -> None:
    table = analysis.steps(recordings["plain"])
    # Running mean and variance of 8 channels, and the number of batches.
    assert set(table["buffer_broadcasts"]) == {2} and set(table["buffer_bytes"]) == {72}
    assert list(table["buckets"]) == [1, 1] + [3, 3] * (STEPS - 1)
    assert set(table["bucket_bytes"]) == {6152}
    assert list(table["plan_version"]) == [0, 0] + [1, 1] * (STEPS - 1)
    assert set(analysis.steps(recordings["no_buffers"])["buffer_broadcasts"]) == {0}


@pytest.mark.parametrize("mode", MODES)
def test_marks_are_in_order_and_one_rank_waits_for_nobody(
    recordings: dict[str, Recording], mode: str
) -> None:
    table = analysis.buckets(recordings[mode])
    assert len(table) and table.attrs["clipped"] == 0
    for earlier, later in (
        ("first_ready_ns", "full_ns"),
        ("launched_ns", "last_launched_ns"),
        ("last_launched_ns", "done_ns"),
        ("launched_ns", "copied_ns"),
        ("turn_ns", "launched_ns"),
        ("done_ns", "copied_ns"),
    ):
        if later == "copied_ns" and "hook" in mode:
            continue  # what a hook sends need not be waited for
        known = table[[earlier, later]].dropna()
        assert (known[earlier] <= known[later]).all()
    assert (table.loc[table["bucket"] == 0, "head_of_line_ms"].dropna() == 0).all()
    marks = table[["launched_ns", "last_launched_ns", "done_ns", "copied_ns"]]
    assert marks.notna().to_numpy().all()
    whole = table["wait_for_rank_ms"] + table["transfer_ms"]
    assert np.allclose(whole, (table["done_ns"] - table["launched_ns"]).astype(float) / 1e6)
    for _, same in table.groupby("sequence"):
        if len(same) == 2:
            assert same["wait_for_rank_ms"].min() == 0
            (last,) = same["last_rank"].unique()
            assert same.loc[same["rank"] == last, "wait_for_rank_ms"].item() == 0


def test_a_buckets_last_parameter_is_one_of_its_own(recordings: dict[str, Recording]) -> None:
    table = analysis.buckets(recordings["plain"])
    assert table["full_ns"].notna().all()
    for rank in (0, 1):
        plans = analysis.plans(recordings["plain"], rank)
        names = plans.set_index(["version", "bucket"])["parameter_names"]
        for row in table[table["rank"] == rank].itertuples():
            of_bucket = names[row.plan_version, row.bucket]
            assert row.last_parameter in of_bucket and row.parameters == len(of_bucket)
    assert plans.groupby("version")["parameters"].sum().unique().tolist() == [10]
    # Full comes before launched, but for the two clocks: the Reducer's zero is ours within µs.
    assert ((table["launched_ns"] - table["full_ns"]) > -50_000).mean() > 0.9


@pytest.mark.parametrize("mode", ["plain", "find_unused"])
def test_overlap_agrees_with_ddps_logger(
    outcomes: list[dict[str, Any]], recordings: dict[str, Recording], mode: str
) -> None:
    table = analysis.overlap(recordings[mode]).set_index(["rank", "iteration"])
    columns = {
        "backward_compute_ms": "backward_compute_time",
        "backward_comm_ms": "backward_comm_time",
        "backward_compute_comm_overlap_ms": "backward_compute_comm_overlap_time",
    }
    for column, name in columns.items():
        ratios = []
        for rank, outcome in enumerate(outcomes):
            # The logger tells of the iteration before, at the begin of a forward.
            for iteration in range(1, STEPS - 1):
                truth = int(outcome[mode]["logged"][iteration + 1][name])
                ratios.append(table.loc[(rank, iteration), column] * 1e6 / max(truth, 1))
        assert len(ratios) == 2 * (STEPS - 2)
        assert abs(np.median(ratios) - 1) < 0.05, (column, ratios)


@pytest.mark.parametrize("mode", MODES)
def test_what_is_hidden_is_in_flight_within_what_the_logger_calls_overlap(
    recordings: dict[str, Recording], mode: str
) -> None:
    table = analysis.overlap(recordings[mode])
    assert table["hidden_ms"].notna().all() and not table["enqueued"].any()
    assert (table["hidden_ms"] >= 0).all()
    # The map of used parameters may be launched before the first bucket.
    if mode not in ("find_unused", "static_graph"):
        assert (table["hidden_ms"] <= table["backward_compute_comm_overlap_ms"] + 1e-6).all()
    in_flight = analysis.buckets(recordings[mode])
    whole = (in_flight["done_ns"] - in_flight["launched_ns"]).astype(float).sum() / 1e6
    if mode == "plain":
        assert 0 < table["hidden_ms"].sum() < whole


def test_the_forward_after_an_unsynced_one_broadcasts_nothing(
    recordings: dict[str, Recording],
) -> None:
    table = analysis.buffers(recordings["no_sync"])
    one = table[table["rank"] == 0]
    assert list(one["iteration"]) == list(range(2 * STEPS))
    assert list(one["no_sync"]) == [True, False] * STEPS
    assert list(one["fired"]) == [True, False] * STEPS
    assert list(one["broadcasts"]) == [2, 0] * STEPS
    buckets = analysis.buckets(recordings["no_sync"])
    assert set(buckets["iteration"] % 2) == {1}


def test_static_graph_begins_with_a_delayed_reduction(recordings: dict[str, Recording]) -> None:
    recording = recordings["static_graph"]
    first = analysis.buckets(recording, step=0)
    assert first["full_ns"].isna().all() and first["launched_ns"].notna().all()
    assert set(analysis.overlap(recording, step=0)["hidden_ms"]) == {0.0}
    assert analysis.buckets(recording, step=3)["full_ns"].notna().all()


def test_two_forwards_before_a_backward_reduce_once(recordings: dict[str, Recording]) -> None:
    table = analysis.buckets(recordings["called_twice"])
    assert set(table["iteration"]) == set(range(1, 2 * STEPS, 2))
    assert len(analysis.overlap(recordings["called_twice"])) == 2 * STEPS


def test_two_modules_are_told_apart(recordings: dict[str, Recording]) -> None:
    table = analysis.buckets(recordings["two_modules"])
    assert dict(table["module"].value_counts()) == {0: len(table) / 2, 1: len(table) / 2}
    assert len(analysis.overlap(recordings["two_modules"])) == 2 * 2 * STEPS


def test_a_python_hooks_collectives_belong_to_their_buckets(
    recordings: dict[str, Recording],
) -> None:
    plain, hooked = (analysis.buckets(recordings[mode]) for mode in ("plain", "python_hook"))
    keys = ["step", "iteration", "rank", "module", "bucket", "bytes", "parameters", "plan_version"]
    pd.testing.assert_frame_equal(hooked[keys], plain[keys])


def test_a_joined_rank_shadows_what_the_others_wait_for(
    recordings: dict[str, Recording],
) -> None:
    recording = recordings["join"]
    last = analysis.buckets(recording, step=STEPS)
    assert set(last["rank"]) == {1} and len(last) == 3
    assert last["wait_for_rank_ms"].notna().all()
    steps = analysis.steps(recording)
    assert set(steps["buffer_broadcasts"]) == {2}
    assert "join" in set(analysis.collectives(recording)["cause"])


def test_the_rebuilt_buckets_order_is_waited_for_in_the_second_step(
    recordings: dict[str, Recording],
) -> None:
    recording = recordings["no_buffers"]
    table = analysis.collectives(recording)
    order = table[table["cause"] == "rebuild_order"]
    assert set(order["step"]) == {1} and len(order) == 4
    exposed = analysis.steps(recording).set_index(["step", "rank"])["exposed_communication_ms"]
    in_finalize = analysis.overlap(recording).set_index(["step", "rank"])["exposed_ms"]
    for rank in (0, 1):
        waited_ms = order.loc[order["rank"] == rank, "duration_ms"].sum()  # one after the other
        whole_ms = in_finalize[1, rank] + waited_ms
        assert exposed[1, rank] == pytest.approx(whole_ms, abs=1e-6)
        assert exposed[2, rank] == pytest.approx(in_finalize[2, rank], abs=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_collectives_are_all_there_once(recordings: dict[str, Recording], mode: str) -> None:
    table = analysis.collectives(recordings[mode])
    assert len(table) == len(recordings[mode].records(kinds=Kind.COLLECTIVE_LAUNCHED))
    assert table["done_ns"].notna().all()
    assert not table.duplicated(["rank", "group", "sequence"]).any()
    launched = recordings[mode].records(kinds=Kind.COLLECTIVE_LAUNCHED, ranks=0)
    names = [recordings[mode].collective_name(record) for record in launched]
    assert len(set(names)) == len(names)
    assert any(re.fullmatch(r"allreduce \d+ \(bucket 0\)", name) for name in names)
    assert set(table["cause"]) <= {cause.name.lower() for cause in Cause} - {"unknown"}
    assert set(table["op"]) <= {"allreduce", "broadcast", "allgather"}


@pytest.mark.parametrize("mode", MODES)
def test_every_step_has_a_finding_with_a_number(
    recordings: dict[str, Recording], mode: str
) -> None:
    recording = recordings[mode]
    for number in range(recording.last_step + 1):
        sentence = analysis.finding(recording, number)
        assert any(unit in sentence for unit in (" ms", " µs", " s ")), sentence
        assert "unknown" not in sentence and "nan" not in sentence.lower()


def test_a_rank_that_is_late_is_the_finding_of_that_step(
    recordings: dict[str, Recording],
) -> None:
    recording = recordings["late"]
    sentence = analysis.finding(recording, LATE_STEP)
    told = re.fullmatch(
        r"rank 0 waited (\d+) ms for rank 1 in bucket (\d)(, \d+ ms of it exposed)?; "
        r"transferring it took [\d.]+ [mµ]s( \(derived\))?",
        sentence,
    )
    assert told, sentence
    waited_ms, bucket = int(told[1]), int(told[2])
    assert LATE_S * 900 < waited_ms < LATE_S * 1500
    table = analysis.buckets(recording, LATE_STEP).set_index(["rank", "bucket"])
    assert table.loc[(0, bucket), "wait_for_rank_ms"] == pytest.approx(waited_ms, abs=0.51)
    for number in range(LATE_STEP):
        assert not analysis.finding(recording, number).startswith(f"rank 0 waited {told[1]}")


@pytest.mark.parametrize("mode", MODES)
def test_findings_from_one_reading_are_those_of_each_step_alone(
    recordings: dict[str, Recording], mode: str
) -> None:
    recording = recordings[mode]
    whole = gather(recording)
    steps = range(-len(whole.constructions), recording.last_step + 1)
    assert -1 in steps
    for number in steps:
        together = analysis.finding(recording, number, whole.of(number))
        assert together == analysis.finding(recording, number)


def test_one_rank_alone_has_no_waits(outcomes: list[dict[str, Any]]) -> None:
    recording = recording_of("plain", outcomes[:1])
    table = analysis.buckets(recording)
    assert set(table["rank"]) == {0} and table["done_ns"].notna().all()
    assert table["wait_for_rank_ms"].isna().all() and table["last_rank"].isna().all()
