"""In which order buckets are full and launched, and what makes them wait."""

from __future__ import annotations

from typing import Any

from ddpviz import analysis
from ddpviz.demonstrations import facts
from ddpviz.demonstrations.demonstration import Demonstration, Fact
from ddpviz.demonstrations.excerpt import Excerpt
from ddpviz.demonstrations.stage import Stage
from ddpviz.events import Cause, Kind, Unused

#: Just above a layer's weights of 256 KiB, so that a bucket closes with the bias: a layer each.
_LAYER_MB = 0.2505
_LAYERS: dict[str, Any] = {"width": 256, "bucket_cap_mb": _LAYER_MB}
#: What the slow rank sleeps: long against what a busy machine adds by itself.
_DELAY_MS = 250.0


def _against_use(stage: Stage) -> None:
    stage.build("chain", backwards=True, find_unused_parameters=True, **_LAYERS)
    stage.train(3)


def _orders(excerpt: Excerpt) -> Fact:
    table = facts.buckets(excerpt, 2)
    by_full = table.sort_values("full_ns")["bucket"].tolist()
    by_launch = table.sort_values("launched_ns")["bucket"].tolist()
    launched = table["launched_ns"].tolist()
    waited = [
        bucket
        for bucket, full in zip(table["bucket"], table["full_ns"], strict=True)
        if bucket and full < launched[bucket - 1]
    ]
    return {
        "buckets": len(table),
        "full_order": by_full,
        "launch_order": by_launch,
        "waited": waited,
        "waiting": len(waited),
        "first_full": by_full[0],
        "last_full": by_full[-1],
    }


def _left_out(stage: Stage) -> None:
    stage.build("chain", skip=1, find_unused_parameters=True, **_LAYERS)
    stage.train(3)


def _unused(excerpt: Excerpt) -> Fact:
    plan = facts.plan(excerpt, -1)
    unused = _unused_names(excerpt)
    bucket = next(
        int(bucket)
        for bucket, names in zip(plan["bucket"], plan["parameter_names"], strict=True)
        if {*names} <= {*unused}
    )
    return {**_orders(excerpt), "unused": unused, "unused_bucket": bucket}


def _unused_names(excerpt: Excerpt) -> list[str]:
    note = excerpt.notes(Unused, rank=0)[-1]
    table = analysis.forward_graph(excerpt, excerpt.last)
    of_rank = table[(table["rank"] == 0) & table["parameter"].isin(note.parameters)]
    return [str(name) for name in of_rank["name"]]


def _searched(excerpt: Excerpt) -> Fact:
    return {
        "used_maps": facts.sent(excerpt, Cause.USED_MAP),
        "map_bytes": facts.sent_bytes(excerpt, Cause.USED_MAP)[-1],
        "unused": _unused_names(excerpt),
        "sinks": facts.sinks(excerpt),
        "rebuilds": excerpt.per_step(Kind.REBUILD),
    }


def _slow_rank(stage: Stage) -> None:
    stage.build("chain", bucket_cap_mb=1)
    stage.train(2)
    stage.configure(delay_ms={stage.ranks - 1: _DELAY_MS})
    stage.train(2)


def _last_to_come(excerpt: Excerpt) -> Fact:
    table = facts.buckets(excerpt, 3)
    last = [int(rank) for rank in table["last_rank"]]
    slow = max(excerpt.ranks)
    ended = analysis.finalize(excerpt, excerpt.steps[3])
    is_slow = ended["rank"] == slow
    return {
        "others_ms": float(ended["finalize_ms"][~is_slow].max()),
        "slow_ms": float(ended["finalize_ms"][is_slow].max()),
        "buckets": len(table),
        "last_ranks": last,
        "last": sorted({*last}),
        "slow": slow,
    }


FAMILY = "Order of the buckets"
DEMONSTRATIONS = (
    Demonstration(
        name="head-of-line",
        title="A bucket that is full waits for the one before it",
        claims=("buckets-go-in-order", "reversal-matches-readiness"),
        look_at=(
            "This model registers its layers against the order of use, and with "
            "find_unused_parameters buckets are never rebuilt, so the bucket that is to go first "
            "is the last to be full: buckets were full in the order {full_order}.",
            "They were launched in the order {launch_order}, and {waiting} of {buckets} had to "
            "wait full, held up by the first.",
        ),
        view="countdown",
        step=2,
        run=_against_use,
        fact=_orders,
        holds=lambda fact: facts.in_order(fact["launch_order"]) and fact["full_order"][0] != 0,
    ),
    Demonstration(
        name="unused-parameter",
        title="The bucket of an unused layer is full at once, and waits for its turn",
        claims=("unused-are-marked-at-once", "buckets-go-in-order"),
        look_at=(
            "{unused} had no part in the forward, so bucket {unused_bucket} was full at the first "
            "gradient of the backward: buckets were full in the order {full_order}.",
            "It went out in its place all the same: the order of the launches was {launch_order}.",
        ),
        view="countdown",
        step=2,
        run=_left_out,
        fact=_unused,
        holds=lambda fact: (
            facts.in_order(fact["launch_order"])
            and fact["full_order"][0] == fact["unused_bucket"] != 0
        ),
    ),
    Demonstration(
        name="find-unused",
        title="find_unused_parameters sends a map of what was used in every step",
        claims=("when-the-sink-is-used", "plan-is-made-in-the-constructor"),
        look_at=(
            "The search found no use of {unused}; a map of {map_bytes} bytes is summed over ranks "
            "besides the buckets, {used_maps} times by step.",
            "Outputs pass through a node of DDP's own in each forward ({sinks:yes}), and buckets "
            "are never rebuilt ({rebuilds} rebuilds by step).",
        ),
        view="forward_graph",
        step=2,
        run=_left_out,
        fact=_searched,
        holds=lambda fact: (
            all(fact["used_maps"]) and all(fact["sinks"]) and not any(fact["rebuilds"])
        ),
    ),
    Demonstration(
        name="straggler",
        title="One slow rank makes all others wait, bucket by bucket",
        claims=("finalize-copies-or-not",),
        look_at=(
            "Rank {slow} sleeps at the begin of its steps, and each of {buckets} buckets was "
            "launched last by rank {last}.",
            "The others launched theirs long before, and waited in finalize: {others_ms:.0f} ms, "
            "where rank {slow} spent {slow_ms:.1f} ms.",
        ),
        view="timeline",
        step=3,
        run=_slow_rank,
        fact=_last_to_come,
        holds=lambda fact: fact["last"] == [fact["slow"]] and fact["others_ms"] > fact["slow_ms"],
    ),
)
