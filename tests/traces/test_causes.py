"""Whose a collective is: DDP's own, or one that the program issues."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpviz.explain.story import tell
from ddpviz.traces import read
from tests.traces.made import GLOO, event, trace, written
from tests.traces.recorded import LONG


def causes(path: Path) -> list[list[str]]:
    """Of each step, in the order of launches."""
    run = read(path).runs[0]
    return [[one.cause.name for one in run.collectives if one.step == step] for step in range(LONG)]


@pytest.mark.parametrize("mode", ["users", "users_stack"])
def test_a_broadcast_that_the_model_issues_is_no_sync_of_buffers(odd: Path, mode: str) -> None:
    found = causes(odd / f"{mode}.rank0.json")
    own, rebuild = ["USER", "BUCKET", "USER"], ["REBUILD_ORDER"] * 2
    assert found == [own, [*rebuild, *own], *[own] * (LONG - 2)], found


@pytest.mark.parametrize("mode", ["users", "users_stack"])
def test_what_the_program_issues_is_told_as_its_own(odd: Path, mode: str) -> None:
    found = tell(read([odd / f"{mode}.rank{rank}.json" for rank in (0, 1)]))
    (cost,) = [cost for cost in found.costs if cost.name == "the program's own collectives"]
    assert (
        "the program itself, not DDP, issues 1 all-reduce and 1 broadcast a step" in cost.sentence
    )
    assert not any(cost.name == "broadcasting buffers" for cost in found.costs)
    assert any("no buffers are broadcast" in one for one in found.fine)
    assert not any("expected" in one for one in found.fine)


def test_a_broadcast_that_nothing_tells_of_is_unknown(tmp_path: Path) -> None:
    """Before the module's first operation, and not flattened as DDP does."""
    content = trace()
    content["traceEvents"] = [one for one in content["traceEvents"] if "flatten" not in one["name"]]
    imported = read(written(tmp_path / "trace.json", content))
    assert {one.cause.name for one in imported.runs[0].collectives} == {"UNKNOWN", "BUCKET"}
    found = tell(imported)
    (cost,) = [one for one in found.costs if one.name == "collectives of an unknown cause"]
    assert "whose 1 broadcast a step (in the forward) is" in cost.sentence
    assert not any("no buffers" in one or "expected" in one for one in found.fine)


def test_what_comes_in_every_step_is_no_rebuild(tmp_path: Path) -> None:
    content = trace(steps=6)
    for number in range(6):
        at = 1000.0 + 2000 * number
        for n in range(2):
            content["traceEvents"] += [
                event("aten::copy_", at + 60 + 30 * n, 2),
                event("c10d::broadcast_", at + 65 + 30 * n, 5),
                event("gloo:broadcast", at + 70 + 30 * n, 10, "user_annotation", GLOO),
            ]
    found = read(written(tmp_path / "trace.json", content)).runs[0].collectives
    assert [one.cause.name for one in found].count("UNKNOWN") == 12
