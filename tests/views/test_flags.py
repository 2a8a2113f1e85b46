"""Findings as flags in a step: on their ranks, at the bucket that they name."""

from __future__ import annotations

import dataclasses

import pytest

from ddpviz.analysis import buckets
from ddpviz.analysis.audit import Finding, Severity
from ddpviz.following.follower import Follower
from ddpviz.views.flags import flagged
from ddpviz.views.live_still import svg
from ddpviz.views.live_timeline import picture
from ddpviz.views.rows import Rows, build_rows
from ddpviz.views.source import read_run
from tests.views.samples import MS, sample_recording

ONE = Finding(
    kind="gradients-differ",
    severity=Severity.WRONG_NUMBERS,
    what="gradients are not the same on all ranks: layer2.weight",
    since_step=2,
    ranks=(1,),
    names=("layer2.weight",),
    evidence="",
    cause="",
    remedy="",
    sure="certain",
    view="timeline",
    view_step=2,
)


def rows_of(*findings: Finding, step: int = 2, open_ranks: list[int] | None = None) -> Rows:
    source = read_run(sample_recording()).source(step)
    return build_rows(source, open_ranks, findings)


def places(rows: Rows) -> list[tuple[int, str]]:
    """Rank and label of the lane of each flag."""
    lanes = {lane.top: lane.label for lane in rows.lanes}
    flags = rows.flags
    return [(int(rank), lanes[top]) for rank, top in zip(flags["rank"], flags["top"], strict=True)]


def test_a_parameter_is_flagged_where_its_bucket_was_launched() -> None:
    rows = rows_of(ONE)
    # Six parameters in three buckets, the last ones first: layer2 is in the second.
    assert places(rows) == [(1, "bucket 1  0.5 MiB")]
    table = buckets(sample_recording(), 2)
    row = table[(table["rank"] == 1) & (table["bucket"] == 1)].iloc[0]
    zero_ns = read_run(sample_recording()).source(2).zero_ns
    assert rows.flags["x"][0] == pytest.approx((row["launched_ns"] - zero_ns) / MS)
    assert rows.flags["head"] == ["wrong numbers (gradients-differ)"]
    assert rows.flags["time"] == [ONE.what]
    assert rows.flags["detail"] == ["first seen in this step"]


def test_a_bucket_is_flagged_by_its_number_on_each_rank() -> None:
    late = dataclasses.replace(ONE, names=("bucket 2",), ranks=(0, 1), since_step=0)
    assert places(rows_of(late)) == [(0, "bucket 2  0.5 MiB"), (1, "bucket 2  0.5 MiB")]
    assert set(rows_of(late).flags["detail"]) == {"since step 0"}


@pytest.mark.parametrize("names", [(), ("a.buffer",), ("bucket 77",)])
def test_what_no_bucket_has_is_flagged_where_backward_ends(names: tuple[str, ...]) -> None:
    rows = rows_of(dataclasses.replace(ONE, names=names))
    assert places(rows) == [(1, "rank 1  compute")]
    spans = rows.spans
    ends = [
        right
        for kind, rank, right in zip(spans["kind"], spans["rank"], spans["right"], strict=True)
        if kind == "backward" and rank == 1
    ]
    assert rows.flags["x"][0] == pytest.approx(max(ends))


def test_a_rank_that_is_folded_is_flagged_on_its_line() -> None:
    assert places(rows_of(ONE, open_ranks=[0])) == [(1, "rank 1")]


def test_another_module_s_bucket_is_not_flagged() -> None:
    assert places(rows_of(dataclasses.replace(ONE, module=7))) == [(1, "rank 1  compute")]


def test_several_findings_at_one_place_are_one_flag() -> None:
    other = dataclasses.replace(ONE, kind="straggler", severity=Severity.SLOW, what="it is late")
    rows = rows_of(ONE, other, ONE)
    assert len(rows.flags["x"]) == 1
    assert rows.flags["head"] == ["wrong numbers (gradients-differ); slow (straggler)"]
    assert rows.flags["time"] == [f"{ONE.what}; it is late"]


def test_only_the_first_step_and_the_one_to_look_at_are_flagged() -> None:
    one = dataclasses.replace(ONE, since_step=0, view_step=2)
    assert [len(rows_of(one, step=step).flags["x"]) for step in range(3)] == [1, 0, 1]
    assert flagged([one], None) == ()
    before = dataclasses.replace(ONE, since_step=-1, view_step=None)
    assert len(rows_of(before).flags["x"]) == 0


def test_a_still_has_them_too() -> None:
    moment = Follower(sample_recording()).moment(2, "", 1000)
    assert 'class="flag"' not in svg(picture(moment))
    drawn = svg(picture(dataclasses.replace(moment, findings=(ONE,))))
    assert drawn.count('class="flag"') == 2  # one in the legend
    assert "what the audit found" in drawn
