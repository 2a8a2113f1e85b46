"""The figure of a construction: every part with its time, what it sent and what was decided."""

from __future__ import annotations

import pytest

from ddpviz import analysis
from ddpviz.analysis.units import format_bytes
from ddpviz.recording import Recording
from tests.analysis import inside
from tests.views.pictures import picture_of, rows_of
from tests.views.samples import sample_recording


def test_every_part_of_every_rank_is_as_long_as_the_table_says(
    recorded: dict[str, Recording],
) -> None:
    recording = recorded["explicit cap"]
    table = analysis.construction(recording)
    bars = rows_of(picture_of(recording, "construction"), "bars")
    assert len(bars) == len(table) == 7 * inside.RANKS
    for row in table.to_dict("records"):
        head = f"{row['part']} on rank {row['rank']}: "
        (bar,) = [bar for bar in bars if bar["head"].startswith(head)]
        assert bar["right"] - bar["left"] == pytest.approx(row["time_ms"], abs=1e-3)
        assert (bar["kind"] == "derived") == bool(row["derived"])
        assert (bar["kind"] == "sends") == bool(row["collectives"])
    assert min(bar["left"] for bar in bars) == 0.0


def test_parts_follow_each_other_on_one_clock(recorded: dict[str, Recording]) -> None:
    bars = rows_of(picture_of(recorded["convnet"], "construction"), "bars")
    of_rank = sorted((bar for bar in bars if bar["rank"] == 1), key=lambda bar: bar["left"])
    order = [bar["head"].partition(" ")[0] for bar in of_rank]
    assert order == ["group", "caps", "collect", "verify", "sync", "reducer", "options"]
    for before, after in zip(of_rank, of_rank[1:], strict=False):
        assert after["left"] >= before["right"] - 1e-3


def test_it_is_told_what_was_decided_and_why(recorded: dict[str, Recording]) -> None:
    told = " | ".join(picture_of(recorded["convnet"], "construction").facts)
    assert "rank 0's parameters and buffers to all: broadcast float32 3.75 MiB" in told
    assert "parameters 0.weight, 1.weight, 1.bias and 14 more, buffers 1.running_mean, " in told
    assert "25 MiB, the default, and 1 MiB for the first bucket" in told
    assert "17 parameters, 3.75 MiB; 15 buffers, 5.79 KiB; nothing is ignored" in told
    assert "1 bucket: all parameters of one dtype and device share a bucket" in told
    options = picture_of(recorded["find_unused by default"], "construction").facts[-1]
    assert options.endswith(": find_unused_parameters")


def test_what_was_ignored_is_named(recorded: dict[str, Recording]) -> None:
    told = " | ".join(picture_of(recorded["ignored"], "construction").facts)
    assert "; ignored: " in told and "nothing is ignored" not in told
    after = told.partition("; ignored: ")[2].partition(" | ")[0]
    assert set(after.split(", ")) == {"side.bias", "norm.running_mean"}
    assert "9 parameters, " in told and "; 2 buffers, " in told


def test_the_title_has_time_collectives_and_bytes(recorded: dict[str, Recording]) -> None:
    title = picture_of(recorded["convnet"], "construction").title
    assert title.startswith("construction of Layers took ")
    assert "; 4 collectives, 3.75 MiB" in title


def test_without_init_sync_nothing_is_sent(recorded: dict[str, Recording]) -> None:
    picture = picture_of(recorded["without init sync"], "construction")
    assert "no collective" in picture.title
    assert rows_of(picture, "bars", "sends") == []
    assert sum("skipped, as init_sync=False" in fact for fact in picture.facts) == 2
    assert [row["text"] for row in rows_of(picture, "labels")].count("did not run") == 2


def test_a_recording_that_began_later_says_what_to_do() -> None:
    picture = picture_of(sample_recording(), "construction")
    assert picture.empty and "begin recording before DistributedDataParallel" in picture.title


def test_of_several_constructions_the_steps_own_is_shown(recorded: dict[str, Recording]) -> None:
    """What Join sends at its end is no construction that could be shown."""
    picture = picture_of(recorded["joined"], "construction", 0)
    assert "Net took " in picture.title and len(rows_of(picture, "bars")) == 7 * inside.RANKS


def test_what_was_sent_is_named_where_bytes_add_up(recorded: dict[str, Recording]) -> None:
    facts = picture_of(recorded["sparse"], "construction").facts
    (sent,) = [fact for fact in facts if "rank 0's parameters and buffers to all" in fact]
    nbytes = 4 * (20 * 8 + 8 * 8 + 8 + 8 * 4 + 4)
    assert f"broadcast float32 {format_bytes(nbytes)}; " in sent
    assert "parameters table.weight, head.weight, head.bias, " in sent
    assert "frozen parameters frozen.weight, frozen.bias" in sent
    off = " | ".join(picture_of(recorded["switched off"], "construction").facts)
    assert "parameters conv.weight, conv.bias, norm.weight and 7 more" in off
