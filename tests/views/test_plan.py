"""The plan: why it is as it is, how well its order fits, who came last."""

from __future__ import annotations

import pandas as pd
import pytest

from ddpviz import analysis
from ddpviz.events import Module
from ddpviz.recording import Recording
from tests.views.pictures import in_lane, picture_of, rows_of

_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20}
_PLANS = ["by default", "explicit cap", "list of caps", "find_unused by default", "two dtypes"]


@pytest.mark.parametrize("case", _PLANS)
def test_each_bucket_is_drawn_up_to_its_limit_and_beyond(
    recorded: dict[str, Recording], case: str
) -> None:
    recording = recorded[case]
    picture = picture_of(recording, "plan")
    unit = _UNITS[picture.x_label or ""]
    table = analysis.plans(recording)
    shown = table[table["version"].isin([table["version"].min(), table["version"].max()])]
    lanes = list(picture.y_labels or ())
    assert len(lanes) == len(shown) + 1 and lanes[0][1] == "as registered"
    bars, marks = rows_of(picture, "bars"), rows_of(picture, "marks")
    assert any(row["kind"] == "overshoot" for row in bars) or case == "by default"
    for (at, label), row in zip(lanes[1:], shown.to_dict("records"), strict=True):
        assert label.endswith(f"bucket {row['bucket']}")
        here = {bar["kind"]: bar for bar in bars if bar["top"] < at < bar["bottom"]}
        unlimited = pd.isna(row["limit_bytes"])
        limit = row["bytes"] if unlimited else row["limit_bytes"]
        fill = here["fill"]
        assert fill["left"] == 0 and fill["right"] == pytest.approx(min(row["bytes"], limit) / unit)
        assert ("overshoot" in here) == (row["bytes"] > limit)
        if "overshoot" in here:
            beyond = here["overshoot"]["right"] - here["overshoot"]["left"]
            assert beyond == pytest.approx((row["bytes"] - limit) / unit)
        limits = [mark["x"] for mark in marks if mark["top"] < at < mark["bottom"]]
        if unlimited:
            assert limits == [] and fill["time"].endswith("without a limit")
        else:  # one far beyond the bar is told by the label
            near = limit <= 1.3 * row["bytes"]
            assert limits == ([pytest.approx(limit / unit)] if near else [])


@pytest.mark.parametrize("case", _PLANS)
def test_parameters_lie_as_registered_and_in_their_buckets(
    recorded: dict[str, Recording], case: str
) -> None:
    recording = recorded[case]
    picture = picture_of(recording, "plan")
    tensors = recording.notes(Module, rank=0)[-1].parameters
    blocks = rows_of(picture, "blocks")
    unit = _UNITS[picture.x_label or ""]
    registered = in_lane(picture, blocks, "as registered")
    assert [block["head"] for block in registered] == [tensor.name for tensor in tensors]
    for block, tensor in zip(registered, tensors, strict=True):
        assert block["right"] - block["left"] == pytest.approx(tensor.bytes / unit)
    table = analysis.plans(recording)
    newest = table[table["version"] == table["version"].max()]
    bucket_of = {name: row.bucket for row in newest.itertuples() for name in row.parameter_names}
    assert {block["head"]: block["bucket"] for block in registered} == bucket_of
    lanes = [at for at, _ in (picture.y_labels or ())[-len(newest) :]]
    for at, names in zip(lanes, newest["parameter_names"], strict=True):
        beneath = [b for b in blocks if at < b["top"] < b["bottom"] < at + 12]
        assert [block["head"] for block in beneath] == list(names)


@pytest.mark.parametrize("case", _PLANS)
def test_the_axis_has_numbers_that_can_be_read(recorded: dict[str, Recording], case: str) -> None:
    """In a unit in which the longest bar is neither a fraction with zeros nor thousands."""
    picture = picture_of(recorded[case], "plan")
    longest = max(row["right"] for row in rows_of(picture, "bars"))
    assert 0.5 <= longest < 1024
    largest = int(analysis.plans(recorded[case])["bytes"].max())
    assert longest * _UNITS[picture.x_label or ""] == pytest.approx(largest)


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
