"""Constructions one by one, and failures outside of steps: where they are told, and how."""

from __future__ import annotations

import pytest

from ddpviz.analysis import finding
from ddpviz.analysis.constructions import constructions
from ddpviz.events import Cause, Failure, Kind, Module
from tests.analysis.material import MemorySource, at_ns, construct, described, step

READY = {3: 120.0, 2: 121.0, 1: 122.0, 0: 123.0}


def rewrapped() -> MemorySource:
    """Two ranks construct Net at 0 ms, train step 1 from 100 ms on, construct Wider at 3000 ms."""
    source = described()
    for rank in (0, 1):
        source.note(rank, Module(1, "Wider", (), (), ()))
        construct(source, rank, 0, 50 + rank)
        step(source, rank, 100, READY, [121, 123], [124, 125], (124, 126), end_ms=130)
        construct(source, rank, 3000, 3020, module=1, sequence=20)
    return source


def failed(source: MemorySource, ms: float, rank: int = 1, number: int = -1) -> None:
    source.note(rank, Failure(rank, number, at_ns(ms), "ValueError: bad batch", ""))


def test_a_failure_in_a_step_of_which_nothing_was_recorded_is_told_at_the_step_before() -> None:
    """The process was killed while it loaded the batch: no record says that it had begun."""
    source = rewrapped()
    for rank in (0, 1):
        step(
            source, rank, 4000, READY, [4021, 4023], [4024, 4025], (4024, 4026), 2, 20, end_ms=4030
        )
    whole = finding(source, 1)
    failed(source, 5000, number=3)
    assert finding(source, 2) == "rank 1 failed at the begin of step 3: ValueError: bad batch"
    assert finding(source, 1) == whole
    source.add(Kind.FORWARD, 0, 5001, 5002, step=3, iteration=3, module=0)
    assert finding(source, 3) == "rank 1 failed: ValueError: bad batch"
    assert "failed" not in finding(source, 2)


def test_each_construction_is_one_of_its_own_with_its_own_length() -> None:
    source = rewrapped()
    first, second = constructions(source)
    assert (first.step, second.step) == (-1, -2)
    assert (first.module, second.module) == ("Net", "Wider")
    assert first.windows == {0: (at_ns(0), at_ns(50)), 1: (at_ns(0), at_ns(51))}
    assert finding(source, -1) == "construction 1 of 2, Net: 51 ms"
    assert finding(source, -2) == "construction 2 of 2, Wider: 20 ms"
    assert finding(source, -3) == "no construction of a DDP module was recorded here"


def test_modules_that_share_an_id_are_told_apart_by_their_order() -> None:
    source = described()
    for rank in (0, 1):
        for made in range(3):
            construct(source, rank, 100 * made, 100 * made + 10 + rank, module=254, sequence=made)
    found = constructions(source)
    assert [one.windows[0][0] for one in found] == [at_ns(ms) for ms in (0, 100, 200)]
    assert all(set(one.windows) == {0, 1} for one in found)
    assert finding(source, -3) == "construction 3 of 3, a DDP module: 11 ms"


def test_only_one_construction_needs_no_number() -> None:
    source = described()
    construct(source, 0, 0, 117)
    assert finding(source, -1) == "construction of Net: 117 ms"


def test_a_constructor_that_hangs_says_whom_it_waits_for() -> None:
    source = described()
    construct(source, 0, 0, None, done=False)
    assert finding(source, -1) == (
        "rank 0 waits for rank 1, which has not launched allgather 0 (verify)"
    )


def test_a_failure_in_a_constructor_is_told_with_what_it_was_in() -> None:
    source = described()
    for rank in (0, 1):
        construct(source, rank, 0, 50)
    construct(source, 0, 100, None, module=1, sequence=1, done=False)
    failed(source, 200, rank=0)
    assert finding(source, -2) == (
        "rank 0 failed in construction 2 of 2, a DDP module waiting for rank 1, which has not "
        "launched allgather 1 (verify): ValueError: bad batch"
    )
    assert finding(source, -1) == "construction 1 of 2, Net: 50 ms"


@pytest.mark.parametrize(
    ("ms", "told_at", "sentence"),
    [
        (-5, -1, "rank 1 failed before construction 1 of 2, Net: ValueError: bad batch"),
        (70, -1, "rank 1 failed after construction 1 of 2, Net: ValueError: bad batch"),
        (140, 1, "rank 1 failed after step 1: ValueError: bad batch"),
        (5000, -2, "rank 1 failed after construction 2 of 2, Wider: ValueError: bad batch"),
    ],
)
def test_a_failure_outside_of_steps_is_told_at_what_its_rank_had_begun_last(
    ms: float, told_at: int, sentence: str
) -> None:
    source = rewrapped()
    failed(source, ms)
    assert finding(source, told_at) == sentence
    for other in {-1, -2, 1} - {told_at}:
        assert "failed" not in finding(source, other)


def test_a_failure_between_steps_names_the_collective_it_was_in() -> None:
    source = rewrapped()
    source.call(1, 40, 131, None, Cause.USER, "barrier", step=-1, iteration=-1)
    failed(source, 140)
    assert finding(source, 1) == (
        "rank 1 failed after step 1 waiting for rank 0, which has not launched barrier 40 (user): "
        "ValueError: bad batch"
    )


def test_what_was_left_open_before_is_not_the_failure() -> None:
    source = rewrapped()
    source.call(1, 40, 60, None, Cause.USER, "barrier", step=-1, iteration=-1)
    failed(source, 140)
    assert finding(source, 1) == "rank 1 failed after step 1: ValueError: bad batch"


def test_a_failure_of_a_rank_of_which_nothing_else_is_known_is_told() -> None:
    source = MemorySource((0, 1))
    for begun in (0, 1):
        step(source, 0, 100.0 * begun, {}, [], [], None, number=begun, end_ms=100.0 * begun + 50)
    failed(source, 170)
    assert finding(source, 1).startswith("rank 1 failed after step 1")
