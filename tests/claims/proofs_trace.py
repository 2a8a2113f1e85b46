"""The claims of the article's trace."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from torch.nn.parallel import DistributedDataParallel as DDP

from tests.claims.evidence import Runs
from tests.claims.proofs import proves

CHAIN = (
    "_call_impl",
    "forward",
    "_pre_forward",
    "_sync_buffers",
    "_sync_module_buffers",
    "_default_broadcast_coalesced",
    "_distributed_broadcast_coalesced",
    "_broadcast_coalesced",
)


def profile(runs: Runs, mode: str = "default") -> list[list[dict[str, Any]]]:
    """A mode's profile of each rank."""
    return [rank[mode] for rank in runs["profiles"]]


def rows(found: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [row for row in found if row["name"] == name]


def inside(outer: dict[str, Any], inner: dict[str, Any]) -> bool:
    same = outer["thread"] == inner["thread"]
    return same and outer["begin"] <= inner["begin"] and inner["end"] <= outer["end"]


@proves("buffer-sync-call-chain")
def call_chain(runs: Runs) -> None:
    for found in runs["functions"]:
        last = max(i for i, (_, name) in enumerate(found) if name == CHAIN[-1])
        above, depth = [CHAIN[-1]], found[last][0]
        for level, name in reversed(found[:last]):
            if level < depth:
                above.append(name)
                depth = level
        assert tuple(reversed(above)) == CHAIN
    for found in profile(runs):
        annotation = rows(found, "DistributedDataParallel.forward")[0]
        assert all(inside(annotation, row) for row in rows(found, "c10d::broadcast_"))


@proves("a-broadcast-every-forward")
def broadcasts_per_forward(runs: Runs) -> None:
    for found in runs["broadcasts"]:
        buffers = [("broadcast", 16, "Float"), ("broadcast", 1, "Long")]
        first, second, *steady = found["forwards"]
        assert first == buffers
        assert [one[2] for one in second] == ["Int", "Int", "Float", "Long"]
        assert all(one == buffers for one in steady)


@proves("frame-lines")
def lines_are_entries(runs: Runs) -> None:
    lines, first = inspect.getsourcelines(inspect.unwrap(DDP._inside_ddp_forward))
    resumed = first + next(i for i, line in enumerate(lines) if line.strip() == "yield")
    path = inspect.getsourcefile(DDP)
    assert path is not None
    assert Path(path).read_text(encoding="utf-8").splitlines()[resumed - 1].strip() == "yield"
    expected = {
        "forward": {inspect.getsourcelines(DDP.forward)[1]},
        "_pre_forward": {inspect.getsourcelines(DDP._pre_forward)[1]},
        "_inside_ddp_forward": {first, resumed},
    }
    for found in profile(runs):
        for name, wanted in expected.items():
            pattern = re.compile(rf"torch/nn/parallel/distributed\.py\((\d+)\): {name}$")
            matches = [match for row in found if (match := pattern.match(row["name"]))]
            assert {int(match[1]) for match in matches} == wanted


@proves("broadcast-op-is-the-collective")
def operation_and_collective(runs: Runs) -> None:
    for found in profile(runs):
        enqueued, running = rows(found, "c10d::broadcast_"), rows(found, "gloo:broadcast")
        assert len(enqueued) == len(running) == 2
        caller = rows(found, "DistributedDataParallel.forward")[0]["thread"]
        assert {row["thread"] for row in enqueued} == {caller}
        assert caller not in {row["thread"] for row in running}
        for before, after in zip(enqueued, running, strict=True):
            assert before["begin"] < after["begin"]


@proves("replicas-stay-identical")
def parameters_only(runs: Runs) -> None:
    first, second = runs["drift"]
    assert first["parameters"] == second["parameters"]
    assert first["ended"][-1] != second["ended"][-1]
