"""Marks that were concluded, not measured: whose turn it was, and ends recorded late."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ddpviz import analysis
from ddpviz.events import Cause, Flag, Kind
from tests.analysis.material import at_ns, described, step


def test_the_first_bucket_waits_for_no_other() -> None:
    """What passes between its last gradient and its launch is the launch itself."""
    source = described()
    step(source, 0, 0.0, {3: 20, 2: 21}, [25, 26], [30, 31], (27, 32), end_ms=40)
    row = analysis.buckets(source).query("rank == 0 and bucket == 0").iloc[0]
    assert (row["head_of_line_ms"], row["launch_delay_ms"]) == (0, 4)
    assert {"head_of_line_ms", "launch_delay_ms"} <= set(row["derived"].split(","))


def test_a_launch_of_the_bucket_before_that_was_lost_leaves_the_turn_unknown() -> None:
    source = described()
    common = {"step": 1, "iteration": 1, "module": 0}
    for parameter in (1, 0):
        source.add(Kind.GRAD_READY, 0, 12, 12, index=parameter, bytes=100, **common)
    source.call(0, 11, 26, 30, index=1, step=1, iteration=1)
    row = analysis.buckets(source).query("bucket == 1").iloc[0]
    assert row["full_ns"] == at_ns(12) and pd.isna(row["turn_ns"])
    assert np.isnan(row["head_of_line_ms"]) and np.isnan(row["launch_delay_ms"])


def test_a_bucket_is_done_at_the_latest_when_finalize_has_ended() -> None:
    """A completion is recorded by a callback that needs the GIL: it can be late, never early."""
    source = described()
    for rank, done in ((0, 37.5), (1, 30)):
        step(source, rank, 0.0, {}, [25], [done], (27, 33), end_ms=40)
    table = analysis.buckets(source).set_index("rank")
    assert table["done_ns"].tolist() == [at_ns(33), at_ns(30)]
    assert table["transfer_ms"].tolist() == [8, 5]
    assert {"done_ns", "transfer_ms"} <= set(table.loc[0, "derived"].split(","))
    assert not {"done_ns", "transfer_ms"} & set(table.loc[1, "derived"].split(","))
    called = analysis.collectives(source).set_index("rank")
    assert called.loc[0, "derived"] == "done_ns,duration_ms"
    assert called.loc[0, "duration_ms"] == 8 and called.loc[1, "derived"] == ""


def test_what_a_forward_waited_for_is_complete_when_it_goes_on() -> None:
    """Buffers and the rebuilt order; not what a buffer hook sends, which finalize waits for."""
    source = described((0,), 1)
    common = {"step": 1, "iteration": 1, "module": 0}
    source.add(Kind.FORWARD, 0, 0, 20, **common)
    source.add(Kind.REBUILD, 0, 1, 5, index=1, **common)
    source.call(0, 1, 2, 9, Cause.REBUILD_ORDER, "broadcast int32", step=1, iteration=1)
    source.add(Kind.BUFFER_SYNC, 0, 6, 10, **common)
    source.call(0, 2, 7, 12, Cause.BUFFERS, "broadcast float32", step=1, iteration=1)
    source.call(0, 3, 8, 12, Cause.BUFFERS, "allreduce float32", step=1, iteration=1)
    table = analysis.collectives(source)
    assert table["done_ns"].tolist() == [at_ns(5), at_ns(10), at_ns(12)]
    assert table["derived"].tolist() == ["done_ns,duration_ms", "done_ns,duration_ms", ""]


def test_what_a_comm_hook_sends_may_end_after_finalize() -> None:
    source = described((0,), 1)
    step(source, 0, 0.0, {}, [25], [37.5], (27, 33), end_ms=40, flags=Flag.FROM_HOOK)
    assert analysis.buckets(source)["done_ns"].tolist() == [at_ns(37.5)]
