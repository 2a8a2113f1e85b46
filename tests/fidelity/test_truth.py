"""Promise 3: what is recorded is what happened, by other witnesses of the same run.

The Reducer's live layout, DDP's logger and c10d's flight recorder are asked independently.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest
import torch

from ddpviz import events
from ddpviz.events import Cause, Clock, Flag, Kind
from tests.fidelity import scenarios
from tests.ranks import run_ranks

_FLIGHT_NAMES = {
    "gloo:all_reduce": "allreduce",
    "gloo:broadcast": "broadcast",
    "gloo:all_gather": "allgather",
}
_ITEM_BYTES = {"Float": 4, "Long": 8, "Int": 4, "Half": 2}

needs_flight_recorder = pytest.mark.skipif(
    not scenarios.HAS_FLIGHT_RECORDER, reason="this torch has no flight recorder for gloo"
)


def record(rank: int, world_size: int, modes: list[str]) -> dict[str, Any]:
    """Each mode recorded; beside it, what the other witnesses said."""
    from ddpviz.probe import Recorder

    outcome: dict[str, dict[str, Any]] = {}
    spans_ns = []
    for mode in modes:
        batches: list[events.Batch] = []
        begin_ns = time.time_ns()
        recorder = Recorder(sinks=[batches.append]).install()
        modules = scenarios.build(mode)
        modules[0]._set_ddp_runtime_logging_sample_rate(1)
        logged = []
        plans = []
        for step in range(scenarios.STEPS):
            plans += scenarios.train(mode, rank, modules, 1, first=step)
            logged.append(dict(modules[0]._get_ddp_logging_data()))
        ddp_buckets = scenarios.plan_of(modules[0])
        recorder.close()
        spans_ns.append((begin_ns, time.time_ns()))
        outcome[mode] = {
            "records": np.concatenate([batch.records for batch in batches]),
            "notes": [note for batch in batches for note in batch.notes],
            "sequences": [batch.sequence for batch in batches],
            "plans": plans,
            "last_plan": ddp_buckets,
            "logged": logged,
        }
    for found, entries in zip(outcome.values(), scenarios.flights(spans_ns), strict=True):
        found["flight"] = entries
    return outcome


SINGLE = [mode for mode in scenarios.MODES if mode not in ("join", "two_modules")]


@pytest.fixture(scope="module")
def outcomes() -> list[dict[str, Any]]:
    return run_ranks(record, 2, [mode for mode in scenarios.MODES if mode != "join"])


def of_kind(outcome: dict[str, Any], kind: Kind) -> np.ndarray:
    records: np.ndarray = outcome["records"]
    return records[records["kind"] == kind]


def notes(outcome: dict[str, Any], cls: type) -> list[Any]:
    return [note for note in outcome["notes"] if isinstance(note, cls)]


@pytest.mark.parametrize("mode", SINGLE)
def test_plans_are_the_reducers_own_at_every_step(
    outcomes: list[dict[str, Any]], mode: str
) -> None:
    for rank in outcomes:
        outcome = rank[mode]
        module = notes(outcome, events.Module)[0]
        names = [parameter.name for parameter in module.parameters]
        plans = notes(outcome, events.Plan)
        last_iteration = of_kind(outcome, Kind.FORWARD)
        for step, truth in enumerate(outcome["plans"]):
            iteration = last_iteration[last_iteration["step"] == step]["iteration"].max()
            valid = [plan for plan in plans if plan.iteration <= iteration][-1]
            got = [([names[i] for i in b.parameters], b.bytes) for b in valid.buckets]
            assert got == truth[0]


@pytest.mark.parametrize("mode", ["plain", "no_sync", "bucket_view", "static_graph"])
def test_rebuilt_plan_is_the_loggers(outcomes: list[dict[str, Any]], mode: str) -> None:
    for rank in outcomes:
        plan = notes(rank[mode], events.Plan)[-1]
        logged = rank[mode]["logged"][-1]
        assert plan.reason == "rebuild"
        sizes = ", ".join(str(bucket.bytes) for bucket in plan.buckets)
        indices = ", ".join(" ".join(str(i) for i in b.parameters) for b in plan.buckets)
        assert logged["rebuilt_bucket_sizes"].replace(",", ", ").split() == sizes.split()
        assert logged["rebuilt_per_bucket_param_indices"].split() == indices.split()


@pytest.mark.parametrize("mode", SINGLE)
def test_ready_order_is_the_loggers(outcomes: list[dict[str, Any]], mode: str) -> None:
    checked = 0
    for rank in outcomes:
        ready = of_kind(rank[mode], Kind.GRAD_READY)
        assert (ready["clock"] == Clock.REDUCER).all()
        logged = rank[mode]["logged"]
        for step in range(3, scenarios.STEPS - 1):
            mine = ready[ready["step"] == step]
            mine = mine[np.argsort(mine["begin_ns"], kind="stable")]
            text = logged[step + 1].get("prev_iteration_grad_ready_order_indices", "")
            truth = [int(word) for word in text.replace(",", " ").split()]
            if not truth:
                continue
            times = {int(r["index"]): int(r["begin_ns"]) for r in mine}
            if mode == "find_unused" and step % 3 == 1:
                # The Reducer marks unused parameters ready as well; the logger leaves them out.
                first_two = sorted(times, key=lambda index: times[index])[:2]
                assert set(first_two) == {4, 5}
                for index in first_two:
                    del times[index]
            assert sorted(truth) == sorted(times)
            assert [times[i] for i in truth] == sorted(times.values())
            checked += 1
    assert checked > 20


@needs_flight_recorder
@pytest.mark.parametrize("mode", [m for m in scenarios.MODES if m != "join"])
def test_collectives_are_the_flight_recorders(outcomes: list[dict[str, Any]], mode: str) -> None:
    for rank in outcomes:
        outcome = rank[mode]
        labels = {note.id: note.text for note in notes(outcome, events.Label)}
        launched = of_kind(outcome, Kind.COLLECTIVE_LAUNCHED)
        launched = launched[np.argsort(launched["sequence"])]
        got = [(labels[int(r["label"])].split()[0], int(r["bytes"])) for r in launched]
        truth = [
            (
                _FLIGHT_NAMES[entry["profiling_name"]],
                sum(
                    math.prod(size) * _ITEM_BYTES[dtype]
                    for size, dtype in zip(entry["input_sizes"], entry["input_dtypes"], strict=True)
                ),
            )
            for entry in outcome["flight"]
        ]
        assert got == truth
        assert list(np.diff(launched["sequence"])) == [1] * (len(launched) - 1)
        done = of_kind(outcome, Kind.COLLECTIVE_DONE)
        assert sorted(done["sequence"]) == sorted(launched["sequence"])
        assert (done["end_ns"] >= done["begin_ns"]).all()
        assert outcome["sequences"] == list(range(len(outcome["sequences"])))


@needs_flight_recorder
def test_bucket_launch_is_where_the_flight_recorder_has_it(
    outcomes: list[dict[str, Any]],
) -> None:
    gaps_ns = []
    for mode in SINGLE:
        for rank in outcomes:
            launched = of_kind(rank[mode], Kind.COLLECTIVE_LAUNCHED)
            launched = launched[np.argsort(launched["sequence"])]
            created = np.array([e["time_created_ns"] for e in rank[mode]["flight"]])
            bucket = launched["cause"] == Cause.BUCKET
            gaps_ns.extend(created[bucket] - launched["begin_ns"][bucket])
    assert len(gaps_ns) > 500
    assert abs(np.median(gaps_ns)) < 200_000


@pytest.mark.parametrize("mode", ["plain", "find_unused", "bucket_view"])
def test_backward_times_are_the_loggers(outcomes: list[dict[str, Any]], mode: str) -> None:
    """Compute, communication and overlap as DDP's logger defines them, same iterations."""
    ratios: dict[str, list[float]] = {}
    for rank in outcomes:
        outcome = rank[mode]
        finalize = {int(r["iteration"]): r for r in of_kind(outcome, Kind.FINALIZE)}
        prepare = {int(r["iteration"]): r for r in of_kind(outcome, Kind.PREPARE_FOR_BACKWARD)}
        launched = of_kind(outcome, Kind.COLLECTIVE_LAUNCHED)
        launched = launched[launched["cause"] == Cause.BUCKET]
        for iteration in range(3, scenarios.STEPS - 1):
            logged = outcome["logged"][iteration + 1]
            first_ns = launched[launched["iteration"] == iteration]["begin_ns"].min()
            end = finalize[iteration]
            mine = {
                "backward_compute_time": end["begin_ns"] - prepare[iteration]["begin_ns"],
                "backward_comm_time": end["end_ns"] - first_ns,
                "backward_compute_comm_overlap_time": end["begin_ns"] - first_ns,
            }
            for name, value in mine.items():
                if int(logged[name]):
                    ratios.setdefault(name, []).append(value / int(logged[name]))
    assert len(ratios) == 3
    for name, values in ratios.items():
        assert len(values) >= 30
        assert abs(np.median(values) - 1) < 0.05, (name, np.median(values))


def test_every_collective_has_its_cause(outcomes: list[dict[str, Any]]) -> None:
    def causes(mode: str) -> dict[str, int]:
        found = of_kind(outcomes[0][mode], Kind.COLLECTIVE_LAUNCHED)["cause"]
        return {
            Cause(c).name: int(n)
            for c, n in zip(*np.unique(found, return_counts=True), strict=True)
        }

    steps = scenarios.STEPS
    buckets = len(outcomes[0]["plain"]["last_plan"])
    assert buckets > 2
    assert causes("plain") == {
        "VERIFY": 2,
        "INITIAL_STATE": 2,  # float parameters and buffers; int64 num_batches_tracked
        "BUFFERS": 2 * steps,  # running statistics; num_batches_tracked
        "REBUILD_ORDER": 2,
        "BUCKET": 1 + buckets * (steps - 1),  # one bucket holds everything in step 1
    }
    assert causes("find_unused")["USED_MAP"] == steps
    assert "REBUILD_ORDER" not in causes("find_unused")
    # The forward after an unsynced one does not broadcast: require_forward_param_sync.
    assert causes("no_sync")["BUFFERS"] == 2 * steps
    assert "BUFFERS" not in causes("no_buffers")
    assert causes("python_hook")["BUCKET"] == causes("plain")["BUCKET"]
    hooked = of_kind(outcomes[0]["python_hook"], Kind.COLLECTIVE_LAUNCHED)
    hooked = hooked[hooked["cause"] == Cause.BUCKET]
    assert (hooked["flags"] & Flag.FROM_HOOK).all()
    assert set(hooked["index"]) == set(range(buckets))
    assert causes("two_modules")["VERIFY"] == 4


def test_unsynced_backwards_have_no_ready_times(outcomes: list[dict[str, Any]]) -> None:
    """The Reducer's statistics are stale after no_sync: nothing is better than wrong."""
    outcome = outcomes[0]["no_sync"]
    forward = of_kind(outcome, Kind.FORWARD)
    unsynced = set(forward[(forward["flags"] & Flag.NO_SYNC) > 0]["iteration"])
    assert len(unsynced) == scenarios.STEPS
    ready = of_kind(outcome, Kind.GRAD_READY)
    assert len(ready) and not unsynced & set(ready["iteration"])


def test_the_parts_of_a_forward_fill_it(outcomes: list[dict[str, Any]]) -> None:
    for outcome in (rank["plain"] for rank in outcomes):
        parts = [
            of_kind(outcome, kind)
            for kind in (Kind.PRE_FORWARD, Kind.MODULE_FORWARD, Kind.POST_FORWARD)
        ]
        forward = of_kind(outcome, Kind.FORWARD)
        assert {len(part) for part in parts} == {len(forward)} and len(forward)
        begins = np.array([part["begin_ns"] for part in parts])
        ends = np.array([part["end_ns"] for part in parts])
        assert (begins[0] == forward["begin_ns"]).all() and (ends[-1] <= forward["end_ns"]).all()
        assert (begins[1:] >= ends[:-1]).all() and (ends > begins).all()


def test_static_graph_first_iteration_is_marked(outcomes: list[dict[str, Any]]) -> None:
    outcome = outcomes[0]["static_graph"]
    launched = of_kind(outcome, Kind.COLLECTIVE_LAUNCHED)
    delayed = launched[(launched["flags"] & Flag.DELAYED) > 0]
    assert set(delayed["step"]) == {0}
    assert 0 not in of_kind(outcome, Kind.GRAD_READY)["step"]
    rebuilt = of_kind(outcome, Kind.REBUILD)
    assert list(rebuilt["iteration"]) == [2]  # forward 3, not 2


def test_a_step_and_rank_stay_below_10_kb(outcomes: list[dict[str, Any]]) -> None:
    records = outcomes[0]["plain"]["records"]
    per_step = [(records["step"] == step).sum() for step in range(scenarios.STEPS)]
    assert max(per_step) * events.RECORD.itemsize < 10_000


def test_the_recorder_leaves_torch_as_it_found_it(outcomes: list[dict[str, Any]]) -> None:
    for outcome in run_ranks(attributes_before_and_after, 1):
        assert outcome["during"] != outcome["before"]
        assert outcome["after"] == outcome["before"]
        assert outcome["group_is_back"]


def attributes_before_and_after(rank: int, world_size: int) -> dict[str, Any]:
    import torch.distributed as dist
    from torch.nn.parallel import distributed

    from ddpviz.probe import Recorder

    def snapshot() -> list[int]:
        owners: list[Any] = [
            distributed.DistributedDataParallel,
            distributed,
            dist,
            dist.Reducer,
            dist.ProcessGroup,
            torch.autograd,
            torch.autograd.graph,
        ]
        return [id(value) for owner in owners for _, value in sorted(vars(owner).items())]

    modules = scenarios.build("plain")
    group = modules[0].process_group
    before = snapshot()
    recorder = Recorder().install()
    recorder.adopt(modules[0])
    scenarios.train("plain", rank, modules, 2)
    during = snapshot()
    recorder.close()
    scenarios.train("plain", rank, modules, 2)
    return {
        "before": before,
        "during": during,
        "after": snapshot(),
        "group_is_back": modules[0].process_group is group,
    }
