"""Which buckets there are, and from when on."""

from __future__ import annotations

from ddpviz.demonstrations import facts
from ddpviz.demonstrations.demonstration import Demonstration, Fact
from ddpviz.demonstrations.excerpt import Excerpt
from ddpviz.demonstrations.stage import Stage
from ddpviz.events import Cause, Flag, Kind


def _capped(stage: Stage) -> None:
    stage.build("chain", bucket_cap_mb=1)
    stage.train(3)


def _one_bucket(excerpt: Excerpt) -> Fact:
    return {
        "buckets": [len(facts.buckets(excerpt, step)) for step in range(3)],
        "parameters": int(facts.plan(excerpt, 0)["parameters"].sum()),
        "first_bytes": int(facts.plan(excerpt, 0)["bytes"].sum()),
        "cap_bytes": facts.configured(excerpt, "bucket_bytes_cap"),
    }


def _rebuild(excerpt: Excerpt) -> Fact:
    return {
        "broadcasts": facts.sent(excerpt, Cause.REBUILD_ORDER),
        "bytes": facts.sent_bytes(excerpt, Cause.REBUILD_ORDER),
        "buckets_before": len(facts.plan(excerpt, 0)),
        "buckets_after": len(facts.plan(excerpt, 1)),
    }


def _default(stage: Stage) -> None:
    stage.build("chain")
    stage.train(3)


def _sizes(excerpt: Excerpt) -> Fact:
    rebuilt = facts.plan(excerpt, -1)
    return {
        "first_plan": facts.plan(excerpt, 0)["bytes"].tolist(),
        "sizes": rebuilt["bytes"].tolist(),
        "limits": [int(limit) for limit in rebuilt["limit_bytes"]],
        "first_size": int(rebuilt["bytes"].iloc[0]),
        "first_limit": int(rebuilt["limit_bytes"].iloc[0]),
        "last_limit": int(rebuilt["limit_bytes"].iloc[-1]),
    }


def _own_cap(stage: Stage) -> None:
    stage.build("chain", bucket_cap_mb=2)
    stage.train(3)


def _static_graph(stage: Stage) -> None:
    stage.build("chain", static_graph=True, bucket_cap_mb=1)
    stage.train(4)


def _static(excerpt: Excerpt) -> Fact:
    sent = excerpt.records(kinds=Kind.COLLECTIVE_LAUNCHED, ranks=0)
    sent = sent[sent["cause"] == Cause.BUCKET]
    delayed = sent[(sent["flags"] & Flag.DELAYED) != 0]
    rebuilds = excerpt.per_step(Kind.REBUILD)
    return {
        "rebuilds": rebuilds,
        "rebuilt_in": rebuilds.index(1),
        "sinks": facts.sinks(excerpt),
        "delayed": [int((delayed["step"] == step).sum()) for step in excerpt.steps],
        "buckets": facts.sent(excerpt, Cause.BUCKET),
    }


FAMILY = "Bucket plans"
DEMONSTRATIONS = (
    Demonstration(
        name="one-bucket",
        title="In the first step there is one bucket, whatever the cap",
        claims=("reversed-buckets", "plan-is-made-in-the-constructor"),
        look_at=(
            "The cap is {cap_bytes:,} bytes, and yet the first step has {buckets[0]} bucket with "
            "all {parameters} parameters and {first_bytes:,} bytes: nothing is sent before the "
            "last gradient is ready.",
            "Later steps have {buckets[1]} buckets, as the second forward rebuilds them in the "
            "order in which gradients were ready.",
        ),
        view="countdown",
        step=0,
        run=_capped,
        fact=_one_bucket,
        holds=lambda fact: fact["buckets"][0] == 1 < fact["buckets"][1],
    ),
    Demonstration(
        name="rebuild",
        title="The rebuild of the buckets sends two broadcasts of its own",
        claims=("plan-is-made-in-the-constructor", "a-broadcast-every-forward"),
        look_at=(
            "This model has no buffer, and yet its steps sent {broadcasts} broadcasts: the new "
            "order and its sizes, which rank 0 decides for all.",
            "They stand at the begin of the second forward, where {buckets_before} bucket became "
            "{buckets_after}.",
        ),
        view="timeline",
        step=1,
        run=_capped,
        fact=_rebuild,
        holds=lambda fact: fact["broadcasts"] == [0, 2, 0],
    ),
    Demonstration(
        name="small-first-bucket",
        title="With the default cap the rebuilt plan begins with a small bucket",
        claims=("small-first-bucket",),
        look_at=(
            "The bucket that is launched first has the limit {first_limit:,} bytes and holds "
            "{first_size:,}; those behind it have the limit {last_limit:,}.",
            "It holds what is ready first, the layer that the forward used last; the first plan "
            "had no such bucket, but all in one of {first_plan:,}.",
        ),
        view="plan",
        step=2,
        run=_default,
        fact=_sizes,
        holds=lambda fact: (
            len(fact["first_plan"]) == 1
            and fact["first_limit"] <= fact["first_size"] < min(fact["sizes"][1:], default=0)
            and fact["first_limit"] < fact["last_limit"]
        ),
    ),
    Demonstration(
        name="explicit-cap",
        title="With a bucket_cap_mb of your own no bucket is small",
        claims=("small-first-bucket", "cap-limits-size"),
        look_at=(
            "All limits are the same, {first_limit:,} bytes, the first bucket's too.",
            "Buckets have {sizes:,} bytes, as one closes when it has reached its limit, after the "
            "tensor that made it do so.",
        ),
        view="plan",
        step=2,
        run=_own_cap,
        fact=_sizes,
        holds=lambda fact: (
            len({*fact["limits"]}) == 1 and min(fact["sizes"][:-1]) >= fact["first_limit"]
        ),
    ),
    Demonstration(
        name="static-graph",
        title="A static graph reduces everything after its first backward, and rebuilds later",
        claims=(
            "plan-is-made-in-the-constructor",
            "when-the-sink-is-used",
            "the-sink-does-nothing",
        ),
        look_at=(
            "The first step reduces behind its whole backward (delayed reductions by step: "
            "{delayed}), which a node of DDP's own at the output sees to (there by forward: "
            "{sinks:yes}).",
            "Buckets by step are {buckets}: rebuilt in step {rebuilt_in}, counted from 0, and so a "
            "forward later than without a static graph.",
        ),
        view="timeline",
        step=0,
        run=_static_graph,
        fact=_static,
        holds=lambda fact: (
            fact["rebuilt_in"] == 2 and [*map(bool, fact["delayed"])] == [1, 0, 0, 0]
        ),
    ),
)
