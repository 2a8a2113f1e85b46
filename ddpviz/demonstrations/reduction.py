"""What is sent of a bucket, who divides it, what is copied back."""

from __future__ import annotations

import math
from typing import Any

from ddpviz import analysis
from ddpviz.demonstrations import facts
from ddpviz.demonstrations.demonstration import Demonstration, Fact
from ddpviz.demonstrations.excerpt import Excerpt
from ddpviz.demonstrations.stage import Stage
from ddpviz.events import Cause, Configuration, Fingerprints, Kind


def _views(stage: Stage) -> None:
    stage.fingerprints()
    stage.build("chain", bucket_cap_mb=1)
    stage.train(3)
    stage.configure(gradient_as_bucket_view=True)
    stage.train(3)


def _copies(excerpt: Excerpt) -> Fact:
    def of(step: int) -> Any:
        table = analysis.finalize(excerpt, excerpt.steps[step])
        return table[table["rank"] == 0].iloc[0]

    without, with_views = of(2), of(5)
    taken = [note for note in excerpt.notes(Fingerprints, rank=0) if note.what == "gradients"]
    storages = {note.step - excerpt.first: note.storages for note in taken}
    return {
        "gradients": len(taken[-1].hashes),
        "storages": storages[2],
        "storages_with_views": storages[5],
        "buckets": len(facts.plan(excerpt, -1)),
        "copy": without["copy"],
        "division": without["division"],
        "copy_with_views": with_views["copy"],
        "division_with_views": with_views["division"],
        "views": _values(excerpt, "gradient_as_bucket_view"),
    }


def _values(excerpt: Excerpt, name: str) -> list[Any]:
    return [note.values.get(name) for note in excerpt.notes(Configuration, rank=0)]


def _fp16(stage: Stage) -> None:
    stage.build("chain", bucket_cap_mb=1, comm_hook="fp16")
    stage.train(3)


def _compressed(excerpt: Excerpt) -> Fact:
    sent = facts.sent_bytes(excerpt, Cause.BUCKET)
    plans = [facts.plan(excerpt, version)["bytes"].sum() for version in (0, -1)]
    return {
        "hook": facts.configured(excerpt, "comm_hook"),
        "bucket_bytes": int(plans[-1]),
        "sent_bytes": sent,
        "last_sent_bytes": sent[-1],
        "collectives": facts.sent(excerpt, Cause.BUCKET),
        "hook_calls": excerpt.per_step(Kind.COMM_HOOK),
    }


def _powersgd(stage: Stage) -> None:
    stage.build("matrix", comm_hook="powersgd")
    stage.train(4)


def _divided_and_not(stage: Stage) -> None:
    stage.fingerprints()
    stage.build("matrix")
    stage.train(1)
    stage.build("matrix", comm_hook=stage.comm_hook("forgets_to_divide"))
    stage.train(1)


def _norms(excerpt: Excerpt) -> Fact:
    found = [note for note in excerpt.notes(Fingerprints, rank=0) if note.what == "gradients"]
    right, wrong = (float(note.norms[0] or 0.0) for note in found)
    table = analysis.replicas(excerpt)
    return {
        "norm": right,
        "norm_with_hook": wrong,
        "times": round(wrong / right, 6),
        "ranks": len(excerpt.ranks),
        "gradients_equal": table.loc[table["what"] == "gradients", "equal"].astype(int).tolist(),
    }


def _two_forwards(stage: Stage) -> None:
    stage.fingerprints()
    stage.load("convnet", image_size=8, batch_size=4)
    stage.train(2)
    stage.act("two_forwards_then_two_backwards")


def _second_lost(excerpt: Excerpt) -> Fact:
    table = analysis.replicas(excerpt).set_index(["what", "step"])["equal"]
    return {
        "forwards": excerpt.per_step(Kind.FORWARD)[-1],
        "backwards": excerpt.per_step(Kind.BACKWARD)[-1],
        "reductions": excerpt.per_step(Kind.FINALIZE)[-1],
        "buckets": facts.sent(excerpt, Cause.BUCKET),
        "parameters_equal": table.loc["parameters"].astype(int).tolist(),
    }


FAMILY = "Reduction"
DEMONSTRATIONS = (
    Demonstration(
        name="bucket-views",
        title="With bucket views nothing is copied back",
        claims=("finalize-copies-or-not", "divided-while-copied"),
        look_at=(
            "Without them the {gradients} gradients lie in {storages} pieces of memory of their "
            "own, and {copy}; with them they lie in {storages_with_views}, the {buckets} buckets: "
            "{copy_with_views}.",
            "By torch's source, gradients are divided without them {division}; and with them "
            "{division_with_views}.",
        ),
        view="finalize",
        step=5,
        run=_views,
        fact=_copies,
        holds=lambda fact: (
            fact["storages"] == fact["gradients"] > fact["buckets"] == fact["storages_with_views"]
        ),
    ),
    Demonstration(
        name="fp16-hook",
        title="The fp16 hook sends half of the bytes",
        claims=("hook-or-sum", "divided-while-copied"),
        look_at=(
            "The buckets have {bucket_bytes:,} bytes, and {last_sent_bytes:,} are sent.",
            "The hook is called for each bucket ({hook_calls} calls by step) and divides, which "
            "DDP itself no longer does with any hook.",
        ),
        view="finalize",
        step=2,
        run=_fp16,
        fact=_compressed,
        holds=lambda fact: 2 * fact["last_sent_bytes"] == fact["bucket_bytes"],
    ),
    Demonstration(
        name="powersgd-hook",
        title="PowerSGD sends two thin factors of a matrix, once it has begun",
        claims=("hook-or-sum",),
        look_at=(
            "The one bucket has {bucket_bytes:,} bytes, and goes out as it is before PowerSGD "
            "begins: bytes by step are {sent_bytes}.",
            "Collectives by step are {collectives}: the factors are sent one after the other.",
        ),
        view="timeline",
        step=3,
        run=_powersgd,
        fact=_compressed,
        holds=lambda fact: fact["last_sent_bytes"] < fact["bucket_bytes"] == fact["sent_bytes"][0],
    ),
    Demonstration(
        name="forgotten-division",
        title="A comm hook that forgets to divide gives gradients that are too large",
        claims=("hook-or-sum", "divided-while-copied"),
        look_at=(
            "On the same weights and the same batch the gradient's norm is {norm:.6g} without the "
            "hook and {norm_with_hook:.6g} with it: {times:g} times, on {ranks} ranks.",
            "Replicas that are compared do not show it, as all ranks are wrong alike (gradients "
            "equal on all: {gradients_equal:yes}).",
        ),
        view="finalize",
        step=1,
        run=_divided_and_not,
        fact=_norms,
        holds=lambda fact: math.isclose(fact["times"], fact["ranks"], rel_tol=1e-3),
    ),
    Demonstration(
        name="two-forwards",
        title="Of two forwards with two backwards behind them only the first is reduced",
        claims=("gradients-are-written-back", "replicas-stay-identical"),
        look_at=(
            "The last step had {forwards} forwards and {backwards} backwards, but {reductions} "
            "reduction: the second backward keeps its rank's own gradients, and nothing says so.",
            "Parameters equal on all ranks, by step: {parameters_equal:yes}; the replicas have "
            "parted for good.",
        ),
        view="replicas",
        step=2,
        run=_two_forwards,
        fact=_second_lost,
        holds=lambda fact: (
            fact["reductions"] < fact["backwards"]
            and [*map(bool, fact["parameters_equal"])] == [1, 1, 0]
        ),
    ),
)
