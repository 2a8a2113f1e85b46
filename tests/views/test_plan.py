"""The plan: why it is as it is, how well its order fits, who came last."""

from __future__ import annotations

import pytest

from ddpviz import analysis
from ddpviz.recording import Recording
from tests.views.pictures import picture_of


@pytest.mark.parametrize("case", ["explicit cap", "find_unused by default", "list of caps"])
def test_the_reason_of_each_plan_is_told(recorded: dict[str, Recording], case: str) -> None:
    recording = recorded[case]
    facts = picture_of(recording, "plan").facts
    table = analysis.plan_reasons(recording)
    for row in table.to_dict("records"):
        (told,) = [fact for fact in facts if fact.startswith(f"plan {row['version']}, ")]
        assert told.endswith(f"{row['why']}; {row['until']}")


def test_the_order_is_told_in_words(recorded: dict[str, Recording]) -> None:
    fits = " | ".join(picture_of(recorded["convnet"], "plan", 2).facts)
    assert "the order fits: no gradient of a later bucket came before" in fits
    recording = recorded["wrong order"]
    (score,) = analysis.plan_reasons(recording)["order_score"]
    buckets = analysis.buckets(recording, 1)
    mine = buckets[buckets["rank"] == 0].sort_values("bucket")
    waited = int((mine["full_ns"] < mine["full_ns"].cummax()).sum())
    wrong = " | ".join(picture_of(recording, "plan", 1).facts)
    assert score < 0.6
    assert waited and f"the order does not fit: {score:.1%} of pairs of gradients" in wrong
    assert f"; {waited} of {len(mine)} buckets were full before an earlier one, and waited" in wrong


def test_who_comes_last_is_named_by_bucket(recorded: dict[str, Recording]) -> None:
    recording = recorded["explicit cap"]
    buckets = analysis.buckets(recording, 3)
    mine = buckets[buckets["rank"] == 0].sort_values("bucket")
    told = ", ".join(
        f"{name} in bucket {number}" for number, name in enumerate(mine["last_parameter"])
    )
    assert f"last to arrive on rank 0: {told}" in picture_of(recording, "plan", 3).facts
