"""The countdown: each bucket's staircase to zero, its waits, and the order of launches."""

from __future__ import annotations

import numpy as np
import pytest

from ddpviz import analysis
from ddpviz.recording import Recording
from ddpviz.views.rows import MOST_GLYPHS
from tests.analysis import inside
from tests.views.pictures import in_lane, picture_of, rows_of
from tests.views.samples import sample_recording


@pytest.mark.parametrize("case", ["explicit cap", "convnet", "wrong order"])
def test_a_step_falls_with_every_gradient_until_nothing_is_pending(
    recorded: dict[str, Recording], case: str
) -> None:
    recording = recorded[case]
    picture = picture_of(recording, "countdown", 1)
    for rank in range(inside.RANKS):
        table = analysis.countdown(recording, 1, rank)
        for bucket, events in table.groupby("bucket"):
            ready = events[events["event"] == "ready"]
            lane = f"rank {rank}  bucket {bucket}"
            steps = [
                row
                for row in rows_of(picture, "bars", "pending")
                if (row["rank"], row["bucket"]) == (rank, bucket)
            ]
            assert len(steps) == len(ready)
            heights = [row["bottom"] - row["top"] for row in steps]
            np.testing.assert_allclose(
                heights, heights[0] * (ready["pending"] + 1) / len(ready), rtol=1e-6
            )
            # One clock for all ranks: only differences are those of the table.
            np.testing.assert_allclose(
                np.diff([row["right"] for row in steps]),
                np.diff(ready["since_ms"].to_numpy(float)),
                atol=1e-3,
            )
            (flight,) = in_lane(picture, rows_of(picture, "bars", "in_flight"), lane)
            at = events.set_index("event")["since_ms"]
            assert flight["right"] - flight["left"] == pytest.approx(
                at["done"] - at["launched"], abs=1e-3
            )


def test_buckets_are_launched_in_their_order(recorded: dict[str, Recording]) -> None:
    picture = picture_of(recorded["wrong order"], "countdown", 1)
    xs, ys = picture.sources["order"]["x"], picture.sources["order"]["y"]
    breaks = np.flatnonzero(np.isnan(xs))
    assert len(breaks) == inside.RANKS
    for part in np.split(np.arange(len(xs)), breaks):
        part = part[~np.isnan(xs[part])]
        assert (np.diff(xs[part]) > 0).all() and (np.diff(ys[part]) > 0).all()


def test_head_of_line_waits_are_drawn_and_say_for_whom(recorded: dict[str, Recording]) -> None:
    recording = recorded["wrong order"]
    picture = picture_of(recording, "countdown", 1)
    drawn = rows_of(picture, "bars", "head_of_line")
    waits = []
    for rank in range(inside.RANKS):
        table = analysis.countdown(recording, 1, rank)
        waits += table["head_of_line_ms"][table["head_of_line_ms"] > 0].tolist()
    assert len(drawn) == len(waits) >= 3 * inside.RANKS
    lengths = [row["right"] - row["left"] for row in drawn]
    np.testing.assert_allclose(sorted(lengths), sorted(waits), atol=1e-3)
    # The gradient that is last to come is in an early bucket.
    assert picture.title.endswith("it waited for bucket 1, which layer0.weight held up")
    assert sum(fact.startswith("head-of-line wait: ") for fact in picture.facts) == 4


def test_where_the_order_fits_nothing_waits(recorded: dict[str, Recording]) -> None:
    picture = picture_of(recorded["convnet"], "countdown", 2)
    assert rows_of(picture, "bars", "head_of_line") == []
    assert "17 gradients counted 2 buckets down to zero" in picture.title
    assert "none waited" in picture.title


def test_each_lane_says_what_its_bucket_has_come_to(recorded: dict[str, Recording]) -> None:
    picture = picture_of(recorded["convnet"], "countdown", 2)
    states = rows_of(picture, "states")
    for lane, label in enumerate(rows_of(picture, "labels")):
        mine = [row for row in states if row["lane"] == lane]
        assert [row["t"] for row in mine] == sorted(row["t"] for row in mine)
        texts = [row["text"] for row in mine]
        many = len(texts) - 3
        assert texts == [f"{many - n} pending" for n in range(many + 1)] + ["launched", "done"]
        assert label["text"] == "done"
    (cursor,) = rows_of(picture, "cursor")
    assert cursor["x"] == cursor["right"] == max(row["t"] for row in states)


def test_static_graphs_first_backward_has_launches_only(recorded: dict[str, Recording]) -> None:
    picture = picture_of(recorded["unused in static"], "countdown", 0)
    assert rows_of(picture, "bars", "pending") == []
    assert len(rows_of(picture, "bars", "in_flight")) == inside.RANKS
    assert "when gradients were ready was not recorded" in picture.title


def test_many_ranks_and_buckets_stay_within_what_a_browser_draws() -> None:
    recording = sample_recording(steps=3, ranks=12, buckets=30, parameters_per_bucket=40)
    picture = picture_of(recording, "countdown")
    assert len(picture.y_labels or ()) <= 48
    assert sum(len(rows_of(picture, source)) for source in picture.sources) <= MOST_GLYPHS
    assert any("of 12" in fact for fact in picture.facts)


def test_without_a_plan_nothing_is_said_of_waits(recorded: dict[str, Recording]) -> None:
    title = picture_of(recorded["sparse"], "countdown", 2).title
    assert "is not known without the bucket plan" in title and "none waited" not in title
    assert "head." in title or "table." in title  # who came last, by its name
