"""Tables → rows: every rectangle stands where the tables say, and their number is bounded."""

from __future__ import annotations

import numpy as np
import pytest

from ddpviz import analysis
from ddpviz.events import Batch, Cause, Kind
from ddpviz.recording import Recording
from ddpviz.views.lanes import choose_open
from ddpviz.views.palette import STRETCHES
from ddpviz.views.rows import COLUMNS, MOST_GLYPHS, build_rows
from ddpviz.views.source import read_run
from ddpviz.views.text import duration, size
from tests.views.frames import Framed
from tests.views.samples import (
    MS,
    STEP_NS,
    ZERO_NS,
    batches_of,
    construct,
    record,
    sample_recording,
)


def rows_of(recording: Recording, step: int) -> Framed:
    return Framed(read_run(recording).source(step))


def counts(rows: Framed) -> dict[str, int]:
    return {str(kind): int(n) for kind, n in rows.spans["kind"].value_counts().items()}


def test_each_bucket_has_the_stretches_of_the_table() -> None:
    recording = sample_recording()
    rows = rows_of(recording, 2)
    table = analysis.buckets(recording, 2)
    for kind in STRETCHES:
        assert counts(rows).get(kind, 0) == int((table[f"{kind}_ms"] > 0).sum())
        drawn = rows.spans[rows.spans["kind"] == kind]
        lengths = (drawn["right"] - drawn["left"]).sort_values()
        expected = table.loc[table[f"{kind}_ms"] > 0, f"{kind}_ms"].sort_values()
        np.testing.assert_allclose(lengths, expected, atol=1e-9)
    # Rank 0 is the last everywhere: it waits for nobody.
    assert set(rows.spans.loc[rows.spans["kind"] == "wait_for_rank", "rank"]) == {1}


def test_stretches_of_a_bucket_follow_each_other_without_a_gap() -> None:
    rows = rows_of(sample_recording(), 2)
    stretches = rows.spans[rows.spans["kind"].isin(STRETCHES) & (rows.spans["rank"] == 1)]
    for _, bucket in stretches.groupby((stretches["top"] + stretches["bottom"]).round(6)):
        # Each bucket is launched before the next is full: none waits for its turn.
        assert list(bucket["kind"]) == [kind for kind in STRETCHES if kind != "head_of_line"]
        np.testing.assert_array_equal(
            bucket["right"].to_numpy()[:-1], bucket["left"].to_numpy()[1:]
        )


def test_compute_lane_is_measured_spans_without_overlap() -> None:
    rows = rows_of(sample_recording(), 2)
    lane = rows.spans[(rows.spans["rank"] == 1) & ~rows.spans["kind"].isin(STRETCHES)]
    spans = {kind: (left, right) for kind, left, right in lane[["kind", "left", "right"]].values}
    assert spans["buffers"] == (0.0, 2.0)
    assert spans["forward"] == (2.0, 30.0)
    exposed = rows.exposed.loc[rows.exposed["rank"] == 1, ["left", "right"]].to_numpy().tolist()
    assert exposed == [[0.0, 2.0], [57.5, 79.0]]
    backward = lane.loc[lane["kind"] == "backward", ["left", "right"]].to_numpy().tolist()
    assert backward == [[32.0, 57.5], [79.0, 79.001]]
    assert spans["optimizer"] == (79.002, 82.0)


def test_a_tick_per_parameter_at_the_time_its_gradient_was_ready() -> None:
    recording = sample_recording()
    rows = rows_of(recording, 2)
    ready = recording.records(kinds=[Kind.GRAD_READY], steps=[2])
    assert len(rows.ticks) == len(ready) == 12
    expected = np.sort((ready["begin_ns"] - ZERO_NS - 2 * STEP_NS) / 1e6)
    np.testing.assert_allclose(np.sort(rows.ticks["x"]), expected)
    assert sorted(rows.ticks["head"]) == sorted(2 * [f"layer{i}.weight" for i in range(6)])


def test_a_hover_has_bytes_parameters_and_whom_it_waits_for() -> None:
    recording = sample_recording()
    rows = rows_of(recording, 2)
    table = analysis.buckets(recording, 2)
    mine = table[table["rank"] == 1].sort_values("bucket")
    told = rows.spans[rows.spans["rank"] == 1].groupby("kind")
    for row, (_, drawn) in zip(
        mine.itertuples(), told.get_group("filling").iterrows(), strict=True
    ):
        assert drawn["head"] == f"bucket {row.bucket} of rank 1 fills"
        assert drawn["detail"].startswith(f"{size(row.bytes)}, {row.parameters} parameters\n")
        assert drawn["detail"].endswith(f"last ready: {row.last_parameter}")
    for row, (_, drawn) in zip(
        mine.itertuples(), told.get_group("wait_for_rank").iterrows(), strict=True
    ):
        assert drawn["head"] == f"bucket {row.bucket} of rank 1 waits for rank 0"
        assert drawn["time"].startswith(f"{duration(row.wait_for_rank_ms)}, from ")


def test_only_what_was_derived_is_marked_as_derived() -> None:
    rows = rows_of(sample_recording(), 2)
    assert set(rows.spans.loc[rows.spans["derived"], "kind"]) == {"launch_delay"}
    assert rows.spans.loc[rows.spans["kind"] == "launch_delay", "derived"].all()


def test_waiting_for_its_turn_is_drawn_only_behind_a_bucket_that_was_not_launched() -> None:
    """Bucket 0 is launched 17 ms after it is full: the others are full before their turn."""
    recording = Recording()
    for batch in batches_of(sample_recording(slow_ms=0)):
        records = batch.records
        mine = (records["step"] == 2) & (records["index"] == 0)
        late = mine & (records["cause"] == Cause.BUCKET)
        records["begin_ns"][late] += 16 * MS
        records["end_ns"][late] += 16 * MS
        moved = (records["step"] == 2) & (records["cause"] == Cause.BUCKET) & ~late
        records["begin_ns"][moved] = np.maximum(
            records["begin_ns"][moved], ZERO_NS + 2 * STEP_NS + 58 * MS
        )
        records["end_ns"][moved] = np.maximum(records["end_ns"][moved], records["begin_ns"][moved])
        recording.append(Batch(batch.rank, 0, records, batch.notes))
    rows, table = rows_of(recording, 2), analysis.buckets(recording, 2)
    first = table[table["bucket"] == 0]
    assert (first["head_of_line_ms"] == 0).all() and (first["launch_delay_ms"] == 17).all()
    waits = rows.spans[rows.spans["kind"] == "head_of_line"]
    heads = {f"bucket {n} of rank {rank} waits its turn" for n in (1, 2) for rank in (0, 1)}
    assert set(waits["head"]) == heads
    assert set(waits["right"]) == {57.0, 58.0} and waits["derived"].all()


def test_other_collectives_and_the_rebuild_are_marks_on_a_lane_of_their_own() -> None:
    recording = sample_recording()
    rows = rows_of(recording, 1)
    assert len(rows.marks) == 4  # on each rank: the rebuild and the collective it sends
    assert {"buckets rebuilt: plan 1", "broadcast (rebuild order)"} == set(rows.marks["head"])
    assert [lane.label for lane in rows.lanes].count("other collectives") == 2
    assert rows_of(recording, 2).marks.empty


def test_exposed_communication_is_labelled_with_its_length() -> None:
    rows = rows_of(sample_recording(), 2)
    assert list(rows.labels["text"]) == [
        "exposed 22 ms, 24 ms in all",
        "exposed 2.0 ms, 3.5 ms in all",
        "exposed 2.0 ms",
        "exposed 1.5 ms",
    ]


def test_exposed_boxes_are_as_long_as_the_table_of_steps_says() -> None:
    recording = sample_recording()
    steps = analysis.steps(recording).set_index(["step", "rank"])["exposed_communication_ms"]
    for step in (0, 1, 2):
        boxes = rows_of(recording, step).exposed
        lengths = (boxes["right"] - boxes["left"]).groupby(boxes["rank"]).sum()
        assert lengths.to_dict() == pytest.approx(steps[step].to_dict())
    heads = rows_of(recording, 1).exposed["detail"]
    assert heads.str.contains("buckets are rebuilt: it waits for rank 0's order").sum() == 2


def test_forward_and_backward_have_holes_where_a_rank_waits() -> None:
    """Nothing is drawn as computing where the rank is said to wait."""
    rows = rows_of(sample_recording(), 1)
    for rank in (0, 1):
        computing = rows.spans[rows.spans["kind"].isin(["forward", "backward"])]
        computing = computing[computing["rank"] == rank]
        for box in rows.exposed[rows.exposed["rank"] == rank].itertuples():
            assert not ((computing["left"] < box.right) & (computing["right"] > box.left)).any()


def test_an_end_that_was_recorded_late_is_cut_and_hatched() -> None:
    """The callback of a future needs the GIL: here bucket 2's comes after finalize has ended."""
    recording = Recording()
    for batch in batches_of(sample_recording()):
        late = (batch.records["step"] == 2) & (batch.records["cause"] == Cause.BUCKET)
        late &= (batch.records["index"] == 2) & (batch.records["kind"] == Kind.COLLECTIVE_DONE)
        batch.records["end_ns"][late] += 20 * MS
        recording.append(Batch(batch.rank, 0, batch.records, batch.notes))
    spans = rows_of(recording, 2).spans
    transfers = spans[(spans["kind"] == "transfer") & spans["derived"]]
    assert len(transfers) == 2 and (transfers["right"] == 79.0).all()  # finalize ended then
    assert transfers["detail"].str.contains("at most so long").all()


def test_lanes_do_not_overlap_and_labels_have_room() -> None:
    for ranks in (2, 5, 12):
        rows = rows_of(sample_recording(ranks=ranks, buckets=8), 2)
        middles = np.array([lane.middle for lane in rows.lanes])
        halves = np.array([lane.half for lane in rows.lanes])
        assert (np.diff(middles) >= 14 - 1e-9).all()
        assert (middles[1:] - halves[1:] > middles[:-1] + halves[:-1]).all()
        assert middles[-1] + halves[-1] < rows.height_px


def test_more_than_eight_ranks_fold_but_for_slowest_fastest_median() -> None:
    recording = sample_recording(ranks=12)
    source = read_run(recording).source(2)
    assert choose_open(source) == {0: "slowest", 1: "fastest", 7: "median"}
    rows = build_rows(source)
    assert len(rows.lanes) == 3 * 4 + 9
    assert set(rows.ticks["rank"]) == {0, 1, 7}
    assert set(rows.spans["rank"]) == set(range(12))
    assert "9 ranks folded" in rows.note
    assert set(build_rows(source, [3, 4]).ticks["rank"]) == {3, 4}


def test_glyphs_are_bounded() -> None:
    rows = rows_of(sample_recording(ranks=2, buckets=4, parameters_per_bucket=1500), 2)
    assert rows.glyphs <= MOST_GLYPHS
    assert "closer than a pixel" in rows.note
    merged = rows.ticks["head"].str.extract(r"^(\d+) parameters$")[0].dropna().astype(int)
    assert merged.sum() + (len(rows.ticks) - len(merged)) == 12_000


def test_what_never_ended_is_drawn_to_the_end_of_the_record() -> None:
    recording = sample_recording(steps=1)
    zero = ZERO_NS + STEP_NS
    common = {"step": 1, "iteration": 1, "module": 0, "group": 0}
    for rank in (0, 1):
        ready = [
            record(Kind.GRAD_READY, zero + i * MS, zero + i * MS, rank=rank, index=5 - i, **common)
            for i in range(2)
        ]
        forward = record(Kind.FORWARD, zero, zero + MS, rank=rank, **common)
        launched = record(
            Kind.COLLECTIVE_LAUNCHED,
            zero + 3 * MS,
            zero + 3 * MS,
            rank=rank,
            cause=3,
            sequence=9,
            index=0,
            label=1,
            **common,
        )
        late = record(Kind.FORWARD, zero + 40 * MS, 0, rank=rank, **common)
        parts = [forward, *ready, late] if rank else [forward, *ready, launched, late]
        recording.append(Batch(rank, 1, np.concatenate(parts)))
    rows = rows_of(recording, 1)
    unfinished = rows.spans[rows.spans["detail"].str.contains("not ended")]
    assert rows.end_ms == 40.0
    assert (unfinished["right"] == 40.0).all()
    assert set(unfinished["kind"]) >= {"wait_for_rank"}


def test_times_start_at_the_first_ranks_step() -> None:
    rows = rows_of(sample_recording(), 1)
    assert rows.spans["left"].min() == 0.0
    assert rows.begin_ms == 0.0


def test_unknown_step_is_one_sentence() -> None:
    recording = sample_recording()
    assert read_run(recording).steps == [0, 1, 2]
    with pytest.raises(ValueError, match="found no step 9 in the recording, expected 0 to 2"):
        read_run(recording).source(9)
    with pytest.raises(ValueError, match="no step 0 in the recording: it has none yet"):
        read_run(Recording()).source(0)
    construct(recording, -20, -10)
    told = "expected 0 to 2, or -1 for the construction of DDP modules"
    with pytest.raises(ValueError, match=told):
        read_run(recording).source(9)
    construct(recording, -40, -30, module=1)
    with pytest.raises(ValueError, match="or -1 to -2 for constructions of DDP modules"):
        read_run(recording).source(-3)


def test_row_tables_keep_their_columns_when_empty() -> None:
    rows = build_rows(read_run(sample_recording()).source(2))
    assert tuple(rows.marks) == COLUMNS["marks"]
    assert rows.marks["head"] == [] and rows.marks["x"].dtype == np.float64
