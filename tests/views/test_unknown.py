"""What host clocks do not see is not drawn as if they did: CUDA, and ranks on several hosts."""

from __future__ import annotations

import numpy as np

from ddpviz import analysis
from ddpviz.events import Batch, Cause, Kind
from ddpviz.export.page import page
from ddpviz.recording import UNNUMBERED, Recording
from ddpviz.views.source import read_run
from tests.views.frames import Framed
from tests.views.samples import (
    MS,
    STEP_NS,
    ZERO_NS,
    batches_of,
    on_cuda,
    record,
    sample_recording,
)


def rows_of(recording: Recording, step: int = 2) -> Framed:
    return Framed(read_run(recording).source(step))


def test_on_cuda_no_exposed_communication_is_drawn() -> None:
    recording = on_cuda(sample_recording())
    rows = rows_of(recording)
    assert rows.exposed.empty and rows.labels.empty
    assert rows.title.startswith("exposed communication is not known: on CUDA")
    # The backward has no hole where finalize was.
    lane = rows.spans[(rows.spans["kind"] == "backward") & (rows.spans["rank"] == 1)]
    assert lane[["left", "right"]].to_numpy().tolist() == [[32.0, 79.001]]


def test_on_cuda_a_bucket_ends_in_one_hatched_stretch_that_says_what_it_is() -> None:
    rows = rows_of(on_cuda(sample_recording()))
    assert not set(rows.spans["kind"]) & {"wait_for_rank", "transfer"}
    flight = rows.spans[rows.spans["kind"] == "in_flight"]
    assert len(flight) == 6 and flight["derived"].all()
    assert flight["detail"].str.contains("on CUDA the host only enqueues it").all()


def test_on_cuda_every_span_and_the_figure_say_that_times_are_the_hosts() -> None:
    recording = on_cuda(sample_recording())
    rows = rows_of(recording)
    lanes = {"forward", "backward", "optimizer", "buffers"}
    spans = rows.spans[rows.spans["kind"].isin(lanes)]
    assert spans["detail"].str.contains("host time: when this was enqueued").all()
    assert "CUDA: times are the host's" in rows.note
    marks = rows_of(recording, 1).marks
    assert marks["time"].str.contains("enqueued on CUDA: when it ended is not known").sum() == 2
    assert "Some times on CUDA are the host" in page(recording)
    assert "CUDA" not in rows_of(sample_recording()).note


def test_across_hosts_waiting_and_transfer_are_one_stretch_from_launch_to_completion() -> None:
    recording = sample_recording(hosts=("a", "b"))
    rows, table = rows_of(recording), analysis.buckets(recording, 2)
    assert not set(rows.spans["kind"]) & {"wait_for_rank", "transfer"}
    flight = rows.spans[rows.spans["kind"] == "in_flight"]
    assert len(flight) == len(table) == 6
    assert not flight["derived"].any()  # both ends are measured
    assert not flight["detail"].str.contains("not ended").any()
    whole_ms = (table["done_ns"] - table["launched_ns"]).astype(float) / 1e6
    np.testing.assert_allclose(
        sorted(flight["right"] - flight["left"]), sorted(whole_ms), atol=1e-9
    )
    assert "as far as their clocks agree" in rows.note
    assert not rows.exposed.empty  # that needs one rank's clock only


def test_a_rank_that_was_not_recorded_leaves_one_stretch() -> None:
    """As when a batch of the other rank was lost: its completion is known all the same."""
    half = Recording()
    half.append(batches_of(sample_recording())[0])
    rows = rows_of(half)
    flight = rows.spans[rows.spans["kind"] == "in_flight"]
    assert len(flight) == 3 and not flight["detail"].str.contains("not ended").any()
    assert (flight["right"] < rows.end_ms).all()


def test_what_has_ended_at_the_latest_is_not_drawn_to_the_end_of_the_record() -> None:
    """A bucket whose completion was lost, and one of which a gradient never came."""
    recording = Recording()
    for batch in batches_of(sample_recording()):
        records = batch.records
        mine = (records["step"] == 2) & (records["rank"] == 1) & (records["iteration"] == 2)
        lost = (records["kind"] == Kind.COLLECTIVE_DONE) & (records["index"] == 1)
        lost |= (records["kind"] == Kind.GRAD_READY) & (records["index"] == 0)
        recording.append(Batch(batch.rank, 0, records[~(mine & lost)], batch.notes))
    spans = rows_of(recording).spans
    late = spans[spans["detail"].str.contains("ended here at the latest")]
    found = {kind: (left, right) for kind, left, right in late[["kind", "left", "right"]].values}
    # The last bucket was launched at 57 ms; finalize ended at 79 ms.
    assert found == {"filling": (52.0, 57.0), "transfer": (69.0, 79.0)}
    assert late["derived"].all()
    assert not spans["detail"].str.contains("not ended").any()


def test_a_bucket_in_flight_for_ever_is_drawn_to_the_end_of_the_record() -> None:
    """Its rank is the only one recorded, so whom it waits for is not known either."""
    recording = Recording()
    recording.append(batches_of(sample_recording(steps=1))[0])
    zero = ZERO_NS + STEP_NS
    common = {"step": 1, "iteration": 1, "module": 0, "group": 0}
    launch = zero + 3 * MS
    call = {"cause": Cause.BUCKET, "sequence": 9, "index": 0, "label": 1}
    parts = [
        record(Kind.FORWARD, zero, zero + MS, **common),
        record(Kind.COLLECTIVE_LAUNCHED, launch, launch, **call, **common),
        record(Kind.FORWARD, zero + 40 * MS, zero + 41 * MS, **common),
    ]
    recording.append(Batch(0, UNNUMBERED, np.concatenate(parts)))
    rows = rows_of(recording, 1)
    (flight,) = rows.spans[rows.spans["kind"] == "in_flight"].to_dict("records")
    assert (flight["left"], flight["right"]) == (3.0, 41.0)
    assert "not ended when the record ended" in flight["detail"]
