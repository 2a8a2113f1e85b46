"""Overlap as a sweep over every edge finds it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpviz.traces import read
from ddpviz.traces.shares import covered, merged, share
from tests.traces.made import trace, written


def swept(computing: list[tuple[int, int]], sending: list[tuple[int, int]]) -> tuple[int, int, int]:
    """Time of computing, of both, and of sending alone, edge by edge."""
    edges = sorted({edge for spans in (computing, sending) for span in spans for edge in span})
    totals = [0, 0, 0]
    for low, high in zip(edges, edges[1:], strict=False):
        computes = any(begin <= low and high <= end for begin, end in computing)
        sends = any(begin <= low and high <= end for begin, end in sending)
        totals[0] += (high - low) * computes
        totals[1] += (high - low) * (computes and sends)
        totals[2] += (high - low) * (sends and not computes)
    return totals[0], totals[1], totals[2]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=12))
def test_merging_keeps_what_is_covered(made: list[tuple[int, int]]) -> None:
    spans = [(begin, begin + length) for begin, length in made]
    found = merged(np.array(spans, np.int64).reshape(-1, 2))
    assert covered(found) == swept(spans, [])[0]
    assert (found[1:, 0] > found[:-1, 1]).all()


@pytest.mark.parametrize("mode", ["eager", "unused"])
def test_shares_of_a_real_trace_are_those_of_a_sweep(own: Path, mode: str) -> None:
    path = own / f"{mode}.rank0.json"
    events = [one for one in json.loads(path.read_text())["traceEvents"] if one["ph"] == "X"]

    def spans(wanted: list[dict[str, object]]) -> list[tuple[int, int]]:
        found = []
        for one in wanted:
            begin = round(float(str(one["ts"])) * 1000)
            found.append((begin, begin + round(float(str(one["dur"])) * 1000)))
        return found

    sends = [one for one in events if one["name"].startswith("gloo:")]
    threads = {one["tid"] for one in sends}
    computes = [
        one for one in events
        if one["cat"] == "cpu_op" and one["tid"] not in threads
        and not one["name"].startswith("c10d::")
    ]  # fmt: skip
    # Of nested rows only the outermost matter, and a sweep over all edges is slow.
    outer: list[tuple[int, int]] = []
    for span in sorted(spans(computes)):
        if not outer or span[1] > outer[-1][1]:
            outer.append(span)
    expected = swept(outer, spans(sends))
    found = share(read(path).runs[0])
    assert (found.compute_ns, found.hidden_ns, found.exposed_ns) == pytest.approx(
        expected, abs=2000
    )
    assert found.compute_ns + found.exposed_ns + found.other_ns == found.window_ns


def test_a_known_overlap(tmp_path: Path) -> None:
    """Of 400 µs of all-reduce and 30 of broadcast in a step, 100 are beside an operation."""
    from tests.traces.made import GLOO, event

    content = trace(steps=1)
    content["traceEvents"] = [
        event("DistributedDataParallel.forward", 0, 10, "user_annotation"),
        event("aten::mm", 100, 100),
        event("gloo:all_reduce", 150, 400, "user_annotation", GLOO),
    ]
    found = share(read(written(tmp_path / "trace.json", content)).runs[0])
    assert (found.compute_ns, found.hidden_ns, found.exposed_ns) == (100_000, 50_000, 350_000)
    assert found.overlap == pytest.approx(50 / 400)
