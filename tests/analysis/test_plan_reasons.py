"""The construction in its parts, why a plan is as it is, and how well its order fits."""

from __future__ import annotations

import itertools

import pandas as pd
import pytest
import torch

from ddpviz.analysis.plans import without_plan
from ddpviz.events import Module, Plan, Unavailable
from ddpviz.recording import Recording
from tests.analysis import inside

#: Of torch 2.13; before it had no function of its own for the caps.
HAS_CAPS = hasattr(torch.nn.parallel.distributed, "_BucketCapacityConfig")


def parts(recording: Recording, rank: int = 0) -> pd.DataFrame:
    table = recording.construction()
    return table[table["rank"] == rank].set_index("part")


def test_a_construction_has_six_steps_in_order(recorded: dict[str, Recording]) -> None:
    table = recorded["explicit cap"].construction()
    assert len(table) == 7 * inside.RANKS and set(table["construction"]) == {-1}
    mine = parts(recorded["explicit cap"])
    names = ["group", "collect", "caps", "verify", "sync", "reducer", "options"]
    assert list(mine.index) == names
    assert list(mine["step"]) == [1, 2, 3, 4, 4, 5, 6]
    ran = mine if HAS_CAPS else mine.drop("caps")
    assert (ran["time_ms"] > 0).all()
    in_time = list(ran.sort_values("begin_ns", kind="stable").index)
    # DDP makes the Reducer's list of parameters when it has chosen the caps.
    assert in_time == [
        name for name in ("group", "caps", *names[1:2], *names[3:]) if name in ran.index
    ]
    assert set(mine.index[mine["derived"] != ""]) == {"group", "options"}
    assert mine.loc["collect", "detail"] == "10 parameters, 2.86 KiB; 3 buffers, 72 B"
    assert mine.loc["group", "detail"] == "3 ranks, gloo"


def test_collectives_of_a_construction_are_those_of_its_fourth_step(
    recorded: dict[str, Recording],
) -> None:
    recording = recorded["explicit cap"]
    mine = parts(recording)
    assert dict(mine["collectives"][mine["collectives"] > 0]) == {"verify": 2, "sync": 2}
    # Parameters and float buffers in one broadcast, the number of batches in another.
    assert mine.loc["sync", "bytes"] == 2928 + 64 + 8
    assert mine.loc["sync", "detail"] == (
        "broadcast float32 2.92 KiB, broadcast int64 8 B; parameters conv.weight, conv.bias, "
        "norm.weight and 7 more, buffers norm.running_mean, norm.running_var, "
        "norm.num_batches_tracked"
    )
    every = recording.collectives()
    outside = every[(every["rank"] == 0) & every["cause"].isin(["verify", "initial_state"])]
    assert mine["bytes"].sum() == outside["bytes"].sum()


def test_without_init_sync_nothing_is_sent(recorded: dict[str, Recording]) -> None:
    mine = parts(recorded["without init sync"])
    for part in ("verify", "sync"):
        assert mine.loc[part, "detail"] == "skipped, as init_sync=False"
        assert mine.loc[part, "collectives"] == 0 and pd.isna(mine.loc[part, "time_ms"])
    assert mine.loc["reducer", "time_ms"] > 0


#: Number of buckets of each plan, the forward it was made for (from 0), and words of its reasons.
PLANS = {
    "by default": [
        (1, 0, ["share a bucket, without a limit"]),
        (2, 1, ["gradients were ready", "dtype and device has the limit 1 MiB", "25 MiB"]),
    ],
    "explicit cap": [
        (1, 0, ["share a bucket, without a limit"]),
        (2, 1, ["every bucket has the limit 2.05 KiB", "no small first one"]),
    ],
    "list of caps": [
        (2, 0, ["order of registration", "bucket_cap_mb_list (1.02 KiB, 4.1 KiB)"]),
        (2, 1, ["gradients were ready", "bucket_cap_mb_list"]),
    ],
    "two dtypes": [
        (2, 0, ["share a bucket, without a limit"]),
        (4, 1, ["gradients were ready", "the first bucket of each dtype and device"]),
    ],
    "unused in static": [
        (1, 0, ["share a bucket, without a limit"]),
        (2, 2, ["gradients were ready"]),
    ],
    "unused here": [(2, 0, ["order of registration", "reversed", "no small first one"])],
    "find_unused by default": [
        (2, 0, ["order of registration", "1 MiB", "the small one is the last to be sent"])
    ],
}


@pytest.mark.parametrize("case", PLANS)
def test_a_plan_has_its_reason(recorded: dict[str, Recording], case: str) -> None:
    table = recorded[case].plan_reasons()
    assert list(table["buckets"]) == [buckets for buckets, _, _ in PLANS[case]]
    assert list(table["iteration"]) == [iteration for _, iteration, _ in PLANS[case]]
    for why, (_, _, words) in zip(table["why"], PLANS[case], strict=True):
        assert all(word in why for word in words), why
    if len(table) == 2:
        assert list(table["until"]) == [
            "it was replaced by the next",
            "DDP rebuilds buckets once: it stays",
        ]
    else:
        assert "never rebuilds" in table["until"][0]
    reducer = parts(recorded[case]).loc["reducer", "detail"]
    assert reducer.endswith(table["why"][0])


def test_limits_that_reasons_name_are_those_of_the_plan(recorded: dict[str, Recording]) -> None:
    def limits(case: str) -> list[list[int | None]]:
        plans = recorded[case].notes(Plan, rank=0)
        return [[bucket.limit_bytes for bucket in plan.buckets] for plan in plans]

    cap = int(inside.CAP * 2**20)
    assert limits("by default") == [[None], [2**20, 25 * 2**20]]
    assert limits("explicit cap") == [[None], [cap, cap]]
    assert limits("find_unused by default") == [[25 * 2**20, 2**20]]  # reversed
    small, large = (int(mib * 2**20) for mib in (0.001, 0.004))
    assert limits("list of caps") == [[large, small], [small, large]]


def test_a_rebuilt_order_fits_and_a_registered_one_may_not(
    recorded: dict[str, Recording],
) -> None:
    def scores(case: str) -> list[float]:
        return list(recorded[case].plan_reasons()["order_score"])

    one_bucket, rebuilt = scores("explicit cap")
    assert pd.isna(one_bucket) and rebuilt == 1.0
    # ``side`` is marked ready at once where it is not used, though its bucket is the last.
    (guessed,) = scores("unused here")
    assert 0 < guessed < 1


def test_where_torch_tells_no_plan_it_is_said_why(recorded: dict[str, Recording]) -> None:
    recording = recorded["sparse"]
    why = "torch does not tell the buckets of a model with sparse gradients"
    assert recording.plans().empty and not recording.buckets().empty
    for rank in recording.ranks:  # once, though the rebuild could not be read either
        (note,) = recording.notes(Unavailable, rank=rank)
        assert (note.what, note.why) == ("bucket plan", why)
    assert without_plan(recording) == f"no bucket plan was recorded: {why}"
    assert without_plan(Recording()) == "no bucket plan was recorded"
    (module,) = recording.notes(Module, rank=0)
    assert module.sparse == ("table.weight",)
    assert [tensor.name for tensor in module.frozen] == ["frozen.weight", "frozen.bias"]


@pytest.mark.parametrize("case", ["two dtypes", "list of caps", "by default", "explicit cap"])
def test_each_bucket_was_closed_by_its_own_limit(recorded: dict[str, Recording], case: str) -> None:
    """Of each dtype all but the last one that was filled: full with its last parameter only."""
    recording = recorded[case]
    (module,) = recording.notes(Module, rank=0)
    plans = [plan for plan in recording.notes(Plan, rank=0) if plan.reason == "rebuild"]
    closed = 0
    for bucket, later in itertools.combinations(plans[-1].buckets, 2):
        last, kind = (module.parameters[one.parameters[-1]] for one in (bucket, later))
        if last.dtype == kind.dtype:
            assert bucket.limit_bytes is not None
            assert bucket.bytes >= bucket.limit_bytes > bucket.bytes - last.bytes
            closed += 1
    assert closed


def test_what_is_reduced_by_a_hook_is_not_ignored(recorded: dict[str, Recording]) -> None:
    mine = parts(recorded["put off"])
    assert "ignored" not in mine.loc["collect", "detail"]
    assert (
        "in no bucket, but reduced by a hook of their own: conv.weight"
        in (mine.loc["collect", "detail"])
    )
    assert mine.loc["sync", "bytes"] == 2928 + 64 + 8 and mine.loc["sync", "collectives"] == 3
    assert "parameters reduced by a hook conv.weight" in mine.loc["sync", "detail"]
