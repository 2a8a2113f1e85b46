"""A clock that is off is found and put right."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import ddpviz
from ddpviz.traces import read
from tests.traces.made import event, trace, written
from tests.traces.recorded import STEPS


@pytest.mark.parametrize("shift_us", [-1_234_567.8, -3.0, 40.0, 5_000.25])
def test_a_shift_put_into_a_copy_is_found(own: Path, tmp_path: Path, shift_us: float) -> None:
    content = json.loads((own / "eager.rank0.json").read_text())
    content["distributedInfo"]["rank"] = 1
    content["host_name"] = "another"
    for one in content["traceEvents"]:
        one["ts"] += shift_us
    copy = written(tmp_path / "copy.json", content)
    found = read([own / "eager.rank0.json", copy])
    clock = found.clocks[1]
    assert clock.offset_ns / 1e3 == pytest.approx(shift_us, abs=5)
    assert clock.residual_ns < 5_000 and clock.matched >= 2 * STEPS - 1
    first, second = (found.recording.records(ranks=rank)["begin_ns"] for rank in (0, 1))
    assert abs(first - second).max() < 5_000
    assert set(found.recording.buckets()["unsplit"]) == {""}
    assert any(f"rank 1's clock was {shift_us:+.1f} µs" in one for one in found.recording.remarks)


def test_a_shift_of_another_rank_is_found_to_its_residual(own: Path, tmp_path: Path) -> None:
    """The two ranks' own clocks are one clock: what is measured moves with the shift, exactly.

    By a minute, so that no other steps of the two could be the same ones.
    """
    content = json.loads((own / "views.rank1.json").read_text())
    before = read([own / "views.rank0.json", own / "views.rank1.json"]).clocks[1]
    assert before.one_host and before.moved_ns == 0
    for one in content["traceEvents"]:
        one["ts"] += 60e6
    shifted = written(tmp_path / "shifted.json", content)
    after = read([own / "views.rank0.json", shifted]).clocks[1]
    assert (after.offset_ns - before.offset_ns) / 1e3 == pytest.approx(60e6, abs=5)
    assert after.moved_ns == round(after.offset_ns)


def test_who_arrives_last_is_told(tmp_path: Path) -> None:
    from ddpviz.explain.story import tell
    from tests.traces.made import step

    late = trace(1)
    late["traceEvents"] = [one for n in range(3) for one in step(1000.0 + 2000 * n, late=60)]
    paths = [written(tmp_path / "a.json", trace(0)), written(tmp_path / "b.json", late)]
    found = read(paths)
    assert found.clocks[1].offset_ns == 0
    told = {one.name: one for one in tell(found).skews}
    assert told["bucket 0"].last == ((1, 3),)
    assert told["bucket 0"].spread_ns == 60_000
    table = ddpviz.load(paths).buckets()
    mine = table[(table["rank"] == 0) & (table["bucket"] == 0)]
    assert set(mine["last_rank"]) == {1}
    assert mine["wait_for_rank_ms"].tolist() == pytest.approx([0.06] * 3)


def test_ranks_that_share_no_collective_keep_their_clocks(tmp_path: Path) -> None:
    other = trace(1)
    other["traceEvents"] = [one for one in other["traceEvents"] if "gloo" not in one["name"]]
    found = read([written(tmp_path / "a.json", trace(0)), written(tmp_path / "b.json", other)])
    assert found.clocks[1].matched == 0
    assert any("shares no collective with rank 0" in one for one in found.recording.remarks)
    assert "the ranks' hosts have no common clock" in set(found.recording.buckets()["unsplit"])


def test_traces_that_do_not_belong_together_are_doubted(own: Path, tmp_path: Path) -> None:
    other = json.loads((own / "unused.rank1.json").read_text())
    mixed = read([own / "stack.rank0.json", written(tmp_path / "b.json", other)])
    assert any("collectives differ between ranks 0 and 1" in one for one in mixed.recording.remarks)
    together = read([own / "stack.rank0.json", own / "stack.rank1.json"])
    assert not any("differ between" in one for one in together.recording.remarks)


def test_steps_without_numbers_that_are_apart_are_doubted(tmp_path: Path) -> None:
    """A clock that is off by two steps looks as two traces begun two steps apart do."""
    paths = [
        written(tmp_path / f"{rank}.json", trace(rank, steps=6, shift=4000.0 * rank))
        for rank in (0, 1)
    ]
    found = read(paths).recording.remarks
    assert any("rank 1 is 2.0 steps from rank 0" in one for one in found)


def test_many_clocks_are_told_in_one_sentence(tmp_path: Path) -> None:
    paths = [written(tmp_path / f"{rank}.json", trace(rank, shift=7.0 * rank)) for rank in range(8)]
    found = read(paths)
    assert [round(one.moved_ns / 1e3) for one in found.clocks] == [7 * rank for rank in range(8)]
    (told,) = [one for one in found.recording.remarks if "clock" in one]
    assert "the clocks of 7 ranks" in told and "rank 7 by most, +49.0 µs" in told


def shifted(content: dict[str, Any], shift_us: float = 0.0, ppm: float = 0.0) -> dict[str, Any]:
    """The trace of another rank of the same host, whose clock is off, or runs faster."""
    events = [
        {**one, "ts": one["ts"] * (1 + ppm / 1e6) + shift_us} for one in content["traceEvents"]
    ]
    info = {**content["distributedInfo"], "rank": 1}
    return {**content, "distributedInfo": info, "traceEvents": events}


def of_one_host(tmp_path: Path, first: dict[str, Any], second: dict[str, Any]) -> list[Path]:
    return [
        written(tmp_path / f"{rank}.json", {**one, "host_name": "host"})
        for rank, one in enumerate((first, second))
    ]


def numbered(content: dict[str, Any]) -> dict[str, Any]:
    rows = [event(f"ProfilerStep#{n}", 990.0 + 2000 * n, 1100, "user_annotation") for n in range(6)]
    return {**content, "traceEvents": [*content["traceEvents"], *rows]}


@pytest.mark.parametrize(("shift_us", "moved_us"), [(40.0, 0), (900.0, 900), (-5000.0, -5000)])
def test_one_hosts_clock_is_moved_only_where_a_collective_contradicts_it(
    tmp_path: Path, shift_us: float, moved_us: float
) -> None:
    """An all-reduce of 450 µs: none has it before the other has come, so 40 µs may be waking up."""
    content = numbered(trace(0, steps=6))
    clock = read(of_one_host(tmp_path, content, shifted(content, shift_us))).clocks[1]
    assert clock.one_host and clock.offset_ns / 1e3 == pytest.approx(shift_us)
    assert clock.moved_ns / 1e3 == pytest.approx(moved_us) and not clock.mispaired


def test_broadcasts_alone_move_no_clock_of_one_host(tmp_path: Path) -> None:
    """What one rank sends may be there before another comes to it."""
    content = numbered(trace(0, steps=6))
    events = [one for one in content["traceEvents"] if "all" not in one["name"]]
    content = {**content, "traceEvents": events}
    clock = read(of_one_host(tmp_path, content, shifted(content, 900.0))).clocks[1]
    assert clock.matched == 6 and clock.offset_ns == 900_000 and clock.moved_ns == 0


def test_steps_without_numbers_on_one_clock_are_doubted_first(tmp_path: Path) -> None:
    """Two steps later on one host: began later, or a clock off; nothing is told of who was late."""
    from ddpviz.explain.story import tell

    content = trace(0, steps=6)
    imported = read(of_one_host(tmp_path, content, shifted(content, 4000.0)))
    assert imported.clocks[1].mispaired and imported.clocks[1].moved_ns == 0
    found = tell(imported)
    (doubt,) = found.doubts
    assert "rank 1 is 2.0 steps from rank 0 by the clock of their host" in doubt
    assert imported.recording.remarks[0] == doubt and doubt not in found.remarks
    assert str(found).index("DOUBT") < str(found).index("What costs most")
    assert not found.skews and not any("waiting for rank" in one.name for one in found.costs)
    assert "<b>Doubt:</b>" in found.to_html() and found.to_json()["doubts"] == [doubt]


def test_a_drift_is_told_as_one(tmp_path: Path) -> None:
    content = trace(0, steps=30)
    other = {**shifted(content, 300.0, ppm=1000.0), "host_name": "another"}
    paths = [written(tmp_path / "a.json", content), written(tmp_path / "b.json", other)]
    found = read(paths)
    assert found.clocks[1].drift_ppm == pytest.approx(1000, rel=0.01)
    assert any("it drifts by +1000 ppm" in one for one in found.recording.remarks)
    steady = read([paths[0], written(tmp_path / "c.json", shifted(content, 300.0))]).clocks[1]
    assert math.isnan(steady.drift_ppm)


def test_hours_are_told_in_seconds(tmp_path: Path) -> None:
    content = trace(0, steps=6)
    other = {**shifted(content, 10_800e6), "host_name": "another"}
    paths = [written(tmp_path / "a.json", content), written(tmp_path / "b.json", other)]
    remarks = " ".join(read(paths).recording.remarks)
    assert "+10800.000000 s from rank 0's" in remarks and "10800000000" not in remarks
