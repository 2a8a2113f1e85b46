"""Hidden and exposed communication: measured spans, and "not known" where host clocks end."""

from __future__ import annotations

import numpy as np

from ddpviz import analysis
from ddpviz.events import Cause, Flag, Kind
from tests.analysis.material import MemorySource, described, step

READY = {3: 18.0, 2: 19.0, 1: 21.0, 0: 22.0}


def alone(**wanted: object) -> MemorySource:
    """A rank of its own whose backward goes from 10 to 98 ms; two buckets."""
    source = described((0,), 1)
    given = {"launched_ms": [20.0, 30.0], "done_ms": [22.0, 31.0], **wanted}
    step(source, 0, 0, READY, finalize_ms=(98.0, 99.0), end_ms=120, **given)  # type: ignore[arg-type]
    return source


def both(source: MemorySource) -> tuple[list[float], list[float]]:
    """Hidden and exposed ms, by the table of steps; by that of overlap it has to be the same."""
    steps, overlap = analysis.steps(source), analysis.overlap(source)
    hidden = steps["hidden_communication_ms"].tolist()
    exposed = steps["exposed_communication_ms"].tolist()
    np.testing.assert_array_equal(hidden, overlap["hidden_ms"])
    np.testing.assert_array_equal(exposed, overlap["exposed_ms"])
    return hidden, exposed


def test_hidden_is_the_time_in_flight_not_the_time_since_the_first_launch() -> None:
    source = alone()
    assert both(source) == ([3.0], [1.0])
    assert analysis.overlap(source)["backward_compute_comm_overlap_ms"].tolist() == [78.0]


def test_what_is_in_flight_at_once_is_hidden_once() -> None:
    assert both(alone(launched_ms=[20.0, 21.0], done_ms=[40.0, 30.0])) == ([20.0], [1.0])


def test_what_is_in_flight_when_finalize_begins_is_hidden_up_to_there() -> None:
    assert both(alone(launched_ms=[20.0, 90.0], done_ms=[22.0, 98.5])) == ([10.0], [1.0])


def test_the_map_of_used_parameters_is_communication_too() -> None:
    source = alone()
    source.call(0, 15, 50, 54, Cause.USED_MAP, "allreduce int32", step=1, iteration=1)
    assert both(source) == ([7.0], [1.0])


def test_a_completion_that_is_not_known_leaves_the_hidden_time_unknown() -> None:
    hidden, exposed = both(alone(done_ms=[22.0, None]))
    assert np.isnan(hidden).all() and exposed == [1.0]


def test_two_backwards_of_one_iteration_are_two() -> None:
    """``retain_graph``: the second launches after the first's finalize."""
    source = alone()
    source.call(0, 20, 110, 112, index=0, step=1, iteration=1)
    source.add(Kind.FINALIZE, 0, 115, 116, step=1, iteration=1, module=0)
    assert analysis.overlap(source)["hidden_ms"].tolist() == [3.0, 2.0]
    assert analysis.steps(source)["hidden_communication_ms"].tolist() == [5.0]


def test_what_static_graph_reduces_after_its_first_backward_is_not_hidden() -> None:
    source = described((0,), 1)
    step(source, 0, 0, {}, [30, 31], [40, 41], None, end_ms=50)
    source.call(0, 9, 20, 25, Cause.USED_MAP, "allreduce int32", step=1, iteration=1)
    source.add(Kind.FINALIZE, 0, 30, 45, step=1, iteration=1, module=0, flags=Flag.DELAYED)
    assert both(source) == ([0.0], [15.0])


def test_on_cuda_host_clocks_know_neither_the_hidden_nor_the_exposed_time() -> None:
    """The host goes on at once: finalize is short, and completions tell of the enqueueing."""
    source = alone(done_ms=[20.01, 30.01], flags=Flag.ENQUEUED)
    hidden, exposed = both(source)
    assert np.isnan([*hidden, *exposed]).all()
    row = analysis.overlap(source).iloc[0]
    assert row["enqueued"]
    columns = ["backward_compute_ms", "backward_comm_ms", "backward_compute_comm_overlap_ms"]
    assert row[columns].isna().all()  # the logger has CUDA events there
    steps = analysis.steps(source)
    assert list(steps["enqueued"]) == [True] and list(steps["buckets"]) == [2]


def test_a_step_on_the_cpu_beside_one_on_cuda_keeps_its_numbers() -> None:
    source = alone()
    step(source, 0, 200, {}, [220], [220.01], (290, 291), 2, 12, end_ms=300, flags=Flag.ENQUEUED)
    table = analysis.steps(source)
    assert table["hidden_communication_ms"].isna().tolist() == [False, True]
    assert table["enqueued"].tolist() == [False, True]


def test_on_cuda_a_buffer_broadcast_has_no_length() -> None:
    source = described((0,), 1)
    common = {"step": 0, "iteration": 0, "module": 0}
    source.add(Kind.FORWARD, 0, 0, 10, **common)
    source.add(Kind.BUFFER_SYNC, 0, 1, 1.1, bytes=72, index=2, **common)
    flags = {"flags": Flag.ENQUEUED}
    source.call(0, 1, 1, 1.01, Cause.BUFFERS, "broadcast float32", bytes=72, **flags)
    source.add(Kind.STEP, 0, 0, 20, step=0)
    table = analysis.buffers(source)
    assert list(table["fired"]) == [True] and table["sync_ms"].isna().all()
    assert analysis.steps(source)["exposed_communication_ms"].isna().all()
    assert analysis.collectives(source)["duration_ms"].isna().all()
    assert list(analysis.collectives(source)["derived"]) == ["done_ns"]


def test_a_span_without_an_end_is_unknown_not_negative() -> None:
    for kind in (Kind.STEP, Kind.FORWARD, Kind.BUFFER_SYNC, Kind.FINALIZE, Kind.BACKWARD):
        source = alone()
        source.add(kind, 0, 105, None, step=1, iteration=1, module=0)
        table = analysis.steps(source).select_dtypes("float")
        assert not (table < 0).any(axis=None), kind
    assert analysis.overlap(alone()).select_dtypes("float").notna().all(axis=None)


def in_forward(cause: Cause, kind: Kind, op: str) -> MemorySource:
    """A step whose forward waits from 2 to 8 ms, and whose finalize takes 1 ms."""
    source = alone()
    source.add(kind, 0, 1.5, 9, step=1, iteration=1, module=0, index=1)
    source.call(0, 5, 2, 8, cause, op, step=1, iteration=1)
    return source


def test_the_order_of_rebuilt_buckets_is_waited_for_but_planning_is_not_communication() -> None:
    table = analysis.steps(in_forward(Cause.REBUILD_ORDER, Kind.REBUILD, "broadcast int32"))
    assert table["exposed_communication_ms"].tolist() == [7.0]
    assert table["hidden_communication_ms"].tolist() == [3.0]


def test_a_buffer_sync_is_exposed_from_its_begin_to_its_end() -> None:
    table = analysis.steps(in_forward(Cause.BUFFERS, Kind.BUFFER_SYNC, "broadcast float32"))
    assert table["exposed_communication_ms"].tolist() == [8.5]


def test_sync_batch_norm_waits_where_it_launches() -> None:
    source = alone()
    source.call(0, 5, 2, 8, Cause.SYNC_BATCH_NORM, "allgather float32", step=1, iteration=1)
    assert analysis.steps(source)["exposed_communication_ms"].tolist() == [7.0]


def test_a_comm_hook_that_waits_is_exposed_and_not_hidden() -> None:
    """A hook that calls ``dist.all_reduce`` returns when that is over: autograd stands still."""
    source = alone(flags=Flag.FROM_HOOK, done_ms=[22.0, 36.0])
    common = {"step": 1, "iteration": 1, "module": 0}
    source.add(Kind.COMM_HOOK, 0, 19.9, 20.1, index=0, **common)  # returned its future at once
    source.add(Kind.COMM_HOOK, 0, 29.9, 37.0, index=1, **common)
    hidden, exposed = both(source)
    np.testing.assert_allclose(hidden, [1.9])
    np.testing.assert_allclose(exposed, [0.1 + 6.0 + 1.0])


def test_what_is_not_known_to_block_is_not_counted() -> None:
    """Of the user's own collectives and Join's a record does not say whether anyone waits."""
    for cause in (Cause.USER, Cause.JOIN):
        source = alone()
        source.call(0, 5, 2, 8, cause, "allreduce float32", step=1, iteration=1)
        assert both(source) == ([3.0], [1.0])


def test_on_cuda_the_order_of_rebuilt_buckets_leaves_the_exposed_time_unknown() -> None:
    source = alone()
    source.call(
        0, 5, 2, 8, Cause.REBUILD_ORDER, "broadcast int32", step=1, iteration=1,
        flags=Flag.ENQUEUED,
    )  # fmt: skip
    table = analysis.steps(source)
    assert table["exposed_communication_ms"].isna().all() and table["enqueued"].all()
