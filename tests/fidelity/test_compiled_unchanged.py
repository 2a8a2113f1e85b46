"""Promise 1 under ``torch.compile``: recorded or not, Dynamo compiles and breaks the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import compiled
from tests.fidelity import scenarios
from tests.ranks import run_ranks


@pytest.fixture(scope="module")
def outcomes() -> list[dict[tuple[str, bool], Any]]:
    return compiled.outcomes()


@pytest.mark.parametrize("case", compiled.BARE)
def test_recording_changes_no_graph_break_recompilation_collective_or_bit(
    outcomes: list[dict[tuple[str, bool], Any]], case: str
) -> None:
    for outcome in outcomes:
        bare, recorded = outcome[case, False], outcome[case, True]
        for what in ("graphs", "counted", "compiled", "collectives", "bits"):
            assert recorded[what] == bare[what], what
        if scenarios.HAS_FLIGHT_RECORDER:
            assert len(bare["collectives"]) > compiled.STEPS
        assert len(bare["graphs"]) > 0


def test_these_runs_do_break_and_recompile(outcomes: list[dict[tuple[str, bool], Any]]) -> None:
    """The comparison above has something to compare."""
    found = outcomes[0]["broken", False]
    assert sum(found["counted"]["graph_break"].values()) > 2
    assert [one for one in found["compiled"] if one[4]]


@pytest.mark.parametrize("case", ["ddp_optimizer", "python_reducer"])
def test_attaching_and_detaching_in_the_middle_compiles_nothing_anew(
    outcomes: list[dict[tuple[str, bool], Any]], case: str
) -> None:
    for found, outcome in zip(run_ranks(compiled.attached, 2, case), outcomes, strict=True):
        assert found == {name: outcome[case, False][name] for name in ("counted", "compiled")}


@pytest.mark.parametrize("case", compiled.CASES)
def test_gradients_are_those_of_eager_mode(
    outcomes: list[dict[tuple[str, bool], Any]], case: str
) -> None:
    if case == "run first":
        return  # its BatchNorm has seen one batch more
    for outcome in outcomes:
        pairs = zip(
            outcome[case, True]["gradients"], outcome["eager", True]["gradients"], strict=True
        )
        for mine, eager in pairs:
            np.testing.assert_allclose(mine, eager, rtol=1e-4, atol=1e-6)
