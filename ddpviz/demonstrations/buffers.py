"""When buffers are broadcast and when not, and what that leaves different."""

from __future__ import annotations

from typing import Any

from ddpviz import analysis
from ddpviz.demonstrations import facts
from ddpviz.demonstrations.demonstration import Demonstration, Fact
from ddpviz.demonstrations.excerpt import Excerpt
from ddpviz.demonstrations.stage import Stage
from ddpviz.events import Module

#: The built-in convnet on few small images.
_SMALL: dict[str, Any] = {"image_size": 8, "batch_size": 4}


def _batchnorm(stage: Stage) -> None:
    stage.load("convnet", **_SMALL)
    stage.train(3)


def _sent(excerpt: Excerpt) -> Fact:
    table = analysis.collectives(excerpt, excerpt.last)
    table = table[(table["cause"] == "buffers") & (table["rank"] == 0)]
    by_dtype = dict(zip(table["dtype"], table["bytes"].tolist(), strict=True))
    whole = sum(by_dtype.values())
    threshold = int(round(whole / facts.forwards(excerpt)["of_threshold"].iloc[-1]))
    return {
        "broadcasts": facts.forwards(excerpt)["broadcasts"].tolist(),
        "bytes": whole,
        "bytes_by_dtype": by_dtype,
        "dtypes": [f"{count} bytes of {dtype}" for dtype, count in by_dtype.items()],
        "threshold_bytes": threshold,
        "buffers": len(excerpt.notes(Module, rank=0)[-1].buffers),
    }


def _around_no_sync(stage: Stage) -> None:
    stage.load("convnet", **_SMALL)
    stage.train(1)
    stage.configure(accumulation=3)
    stage.train(1)
    stage.configure(accumulation=1)
    stage.train(2)


def _around_eval(stage: Stage) -> None:
    stage.load("convnet", **_SMALL)
    stage.train(1)
    stage.act("evaluate", forwards=2)
    stage.train(3)


def _fired(excerpt: Excerpt) -> Fact:
    table = facts.forwards(excerpt)
    fired = table["fired"].astype(int).tolist()
    return {
        "fired": fired,
        "no_sync": table["no_sync"].astype(int).tolist(),
        "no_grad": table["no_grad"].astype(int).tolist(),
        "why": table.loc[~table["fired"], "why"].iloc[-1],
        "broadcasts": table["broadcasts"].tolist(),
    }


def _decided_before(quiet: list[int], fired: list[int]) -> bool:
    """Whether buffers were synced unless the forward before was a quiet one."""
    return fired[1:] == [1 - one for one in quiet[:-1]]


def _off(stage: Stage) -> None:
    stage.load("convnet", forward_sync_buffers=False, **_SMALL)
    stage.train(3)


def _drifting(stage: Stage) -> None:
    stage.fingerprints()
    stage.load("convnet", **_SMALL)
    stage.train(4)


def _equal(excerpt: Excerpt) -> Fact:
    table = analysis.replicas(excerpt)
    found: Fact = {
        f"{str(what).replace(' ', '_')}_equal": rows["equal"].astype(int).tolist()
        for what, rows in table.groupby("what", sort=False)
    }
    last = table[table["what"] == "buffers"].iloc[-1]
    return {
        **found,
        "different": list(last["names"]),
        "differing": len(last["names"]),
        "buffers": len(excerpt.notes(Module, rank=0)[-1].buffers),
    }


def _replacing(stage: Stage) -> None:
    stage.build("replacing")
    stage.train(3)


def _reassigned(excerpt: Excerpt) -> Fact:
    table = facts.forwards(excerpt)
    return {
        "reassigned": [list(names) for names in table["reassigned"]],
        "replaced": [len(names) for names in table["reassigned"]],
        "names": list(table["reassigned"].iloc[-1]),
        "broadcasts": table["broadcasts"].tolist(),
        "bytes": table["bytes"].tolist(),
    }


def _hooked(stage: Stage) -> None:
    stage.fingerprints()
    stage.load("convnet", **_SMALL)
    stage.train(1)
    stage.act("average_buffers_after_the_forward")
    stage.train(3)


def _hook(excerpt: Excerpt) -> Fact:
    table = facts.forwards(excerpt)
    sent = analysis.collectives(excerpt)
    sent = sent[(sent["rank"] == 0) & (sent["cause"] == "buffers")]

    def by_step(op: str) -> list[int]:
        return [int(((sent["step"] == at) & (sent["op"] == op)).sum()) for at in excerpt.steps]

    return {
        "broadcasts": by_step("broadcast"),
        "all_reduces": by_step("allreduce"),
        "hook": table["hook"].tolist(),
        "where": table["hook"].iloc[-1],
        "buffers_equal": _equal(excerpt)["buffers_equal"],
    }


FAMILY = "Buffers"
DEMONSTRATIONS = (
    Demonstration(
        name="buffer-broadcasts",
        title="BatchNorm costs a broadcast per dtype before each forward",
        claims=(
            "a-broadcast-every-forward",
            "all-buffers-in-one-collective",
            "buffer-size-is-250-mib",
            "250-mb-per-iteration",
        ),
        look_at=(
            "The {buffers} buffers go out as {dtypes}, in {broadcasts} broadcasts by forward, all "
            "of them before the module runs.",
            "That is {bytes:,} bytes in a step: {threshold_bytes:,} is only where a broadcast "
            "would be cut.",
        ),
        view="buffers",
        step=2,
        run=_batchnorm,
        fact=_sent,
        holds=lambda fact: {*fact["broadcasts"]} == {len(fact["dtypes"])},
    ),
    Demonstration(
        name="around-no-sync",
        title="After a forward in no_sync buffers are not broadcast",
        claims=("when-buffers-are-synced",),
        look_at=(
            "By forward, in no_sync: {no_sync:yes}; buffers synced: {fired:yes}.",
            "Each forward decides about the one after it, so the first in no_sync still syncs, "
            "and the first one out of it does not.",
        ),
        view="buffers",
        step=1,
        run=_around_no_sync,
        fact=_fired,
        holds=lambda fact: _decided_before(fact["no_sync"], fact["fired"]),
    ),
    Demonstration(
        name="around-eval",
        title="After an evaluation the first training forward does not broadcast buffers",
        claims=("when-buffers-are-synced",),
        look_at=(
            "By forward, without gradients: {no_grad:yes}; buffers synced: {fired:yes}.",
            "The first training forward behind the evaluation keeps the rank's own buffers: {why}.",
        ),
        view="buffers",
        step=1,
        run=_around_eval,
        fact=_fired,
        holds=lambda fact: _decided_before(fact["no_grad"], fact["fired"]),
    ),
    Demonstration(
        name="buffers-off",
        title="With the flag off no forward broadcasts buffers",
        claims=("how-to-turn-it-off",),
        look_at=(
            "By forward, buffers synced: {fired:yes}, with {broadcasts} broadcasts.",
            "The reason is the one condition that does not hold: {why}.",
        ),
        view="buffers",
        step=2,
        run=_off,
        fact=_fired,
        holds=lambda fact: not any(fact["fired"]) and not any(fact["broadcasts"]),
    ),
    Demonstration(
        name="drift",
        title="Parameters stay equal, buffers drift apart and are put right at the next forward",
        claims=(
            "drift-and-repair",
            "replicas-stay-identical",
            "the-next-forward-repairs-buffers",
        ),
        look_at=(
            "Equal on all ranks, by step: parameters {parameters_equal:yes}; buffers before their "
            "sync {buffers_before_equal:yes}, and after it {buffers_after_equal:yes}.",
            "At the end {differing} of {buffers} buffers differ, and state_dict() of each rank "
            "gives its own.",
        ),
        view="replicas",
        step=3,
        run=_drifting,
        fact=_equal,
        holds=lambda fact: (
            all(fact["parameters_equal"])
            and all(fact["buffers_after_equal"])
            and not any(fact["buffers_before_equal"][1:])
        ),
    ),
    Demonstration(
        name="reassigned-buffer",
        title="A buffer that was replaced is found again before the next sync",
        claims=("buffers-are-listed-anew",),
        look_at=(
            "The forward puts a new tensor in the place of {names}: of {replaced} buffers, by "
            "forward, the tensor was another one than at the sync before.",
            "DDP lists the buffers anew before each sync, so the new one is broadcast: {bytes} "
            "bytes in {broadcasts} broadcasts by forward.",
        ),
        view="buffers",
        step=2,
        run=_replacing,
        fact=_reassigned,
        holds=lambda fact: all(fact["replaced"][1:]) and all(fact["broadcasts"]),
    ),
    Demonstration(
        name="post-forward-hook",
        title="A buffer hook behind the forward takes the place of the broadcast",
        claims=("when-buffers-are-synced",),
        look_at=(
            "From the second step on a hook averages the buffers: broadcasts by step are "
            "{broadcasts}, the hook's all-reduces {all_reduces}.",
            "Its place is {where}, so buffers are equal at the end of a step, too (by step: "
            "{buffers_equal:yes}), where the broadcast leaves that to the next forward.",
        ),
        view="buffers",
        step=3,
        run=_hooked,
        fact=_hook,
        holds=lambda fact: (
            all(fact["all_reduces"][1:])
            and all(fact["buffers_equal"][1:])
            and not any(fact["broadcasts"][1:])
        ),
    ),
)
