"""``ddpviz demo`` runs real ranks and leaves what it says."""

from __future__ import annotations

import ddpviz
from ddpviz.events import Kind
from tests.cli.command import table_below
from tests.cli.conftest import Demo


def test_every_step_of_every_rank_is_recorded(demo: Demo) -> None:
    recording = ddpviz.load(demo.folder)
    assert recording.ranks == list(range(demo.engines))
    for rank in recording.ranks:
        steps = recording.records(kinds=[Kind.STEP], ranks=[rank])["step"]
        assert sorted(steps) == list(range(demo.steps))


def test_the_table_has_a_row_per_step_and_the_median(demo: Demo) -> None:
    rows = table_below(demo.done.stdout, "Steps")
    assert [row[0] for row in rows] == [*map(str, range(demo.steps)), "median"]


def test_the_table_counts_the_buffer_broadcasts(demo: Demo) -> None:
    recorded = ddpviz.load(demo.folder).steps().groupby("step")["buffer_broadcasts"].max()
    rows = table_below(demo.done.stdout, "Steps")[:-1]
    assert [int(row[10]) for row in rows] == list(recorded)
    assert max(recorded) > 0


def test_the_plan_is_shown_before_and_after_the_rebuild(demo: Demo) -> None:
    before = table_below(demo.done.stdout, "Bucket plan 0: as constructed")
    after = table_below(demo.done.stdout, "Bucket plan 1: after the rebuild")
    assert len(before) >= 1
    assert len(after) > 1


def test_it_says_where_recording_and_page_are(demo: Demo) -> None:
    assert f"recording  {demo.folder}\n" in demo.done.stdout
    assert f"page       {demo.folder / 'timeline.html'}\n" in demo.done.stdout
    assert (demo.folder / "timeline.html").stat().st_size > 0


def test_progress_goes_to_stderr_only(demo: Demo) -> None:
    assert f"step {demo.steps} of {demo.steps}" in demo.done.stderr
    assert "starting" not in demo.done.stdout
