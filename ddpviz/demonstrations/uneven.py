"""Ranks with different amounts of data: Join and its shadow steps."""

from __future__ import annotations

from typing import Any

from ddpviz.demonstrations.demonstration import Demonstration, Fact
from ddpviz.demonstrations.excerpt import Excerpt
from ddpviz.demonstrations.stage import Stage
from ddpviz.events import Cause, Kind


def _uneven(stage: Stage) -> None:
    stage.load("convnet", image_size=8, batch_size=4)
    stage.act("train_until_joined")


def _joined(excerpt: Excerpt) -> Fact:
    chosen = excerpt.records(kinds=Kind.COMMON_RANK)
    sent = excerpt.records(kinds=Kind.COLLECTIVE_LAUNCHED)
    forward = excerpt.records(kinds=Kind.FORWARD)
    reduced = _bytes(sent[sent["cause"] == Cause.BUCKET], excerpt.ranks)
    asked = _bytes(sent[sent["cause"] == Cause.JOIN], excerpt.ranks)
    sizes = {size for of_rank in reduced for size in of_rank}
    ghosts = [[size for size in of_rank if size in sizes] for of_rank in asked]
    return {
        "forwards": [int((forward["rank"] == rank).sum()) for rank in excerpt.ranks],
        "chosen": chosen["index"][chosen["cause"] == Cause.BUFFERS].tolist(),
        "highest": max(excerpt.ranks),
        "reductions": [len(of_rank) for of_rank in reduced],
        "ghosts": [len(of_rank) for of_rank in ghosts],
        "ghost_bytes": ghosts[0],
        "questions": [len(a) - len(g) for a, g in zip(asked, ghosts, strict=True)],
    }


def _bytes(sent: Any, ranks: list[int]) -> list[list[int]]:
    """Bytes of each collective, by rank."""
    return [sent["bytes"][sent["rank"] == rank].tolist() for rank in ranks]


FAMILY = "Uneven data"
DEMONSTRATIONS = (
    Demonstration(
        name="join",
        title="Under Join a rank without data goes on reducing, and the highest rank decides",
        claims=("join-takes-the-lowest-rank", "rank-0-is-authoritative"),
        look_at=(
            "By rank there were {forwards} forwards, {reductions} buckets reduced, and {ghosts} "
            "more of zeros, which ranks without data send ({ghost_bytes} bytes on rank 0).",
            "The rank whose buffers everybody got was each time the highest that had data "
            "({chosen}), and agreeing took all-reduces of its own ({questions} by rank).",
        ),
        view="buffers",
        step=1,
        run=_uneven,
        fact=_joined,
        holds=lambda fact: {*fact["chosen"]} == {fact["highest"]} and any(fact["ghosts"]),
    ),
)
