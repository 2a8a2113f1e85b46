"""The ring: nothing is lost, neither at its end nor when the process is killed."""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ddpviz.events import RECORD, Kind
from ddpviz.probe.ring import Ring, RingFull, read_ring


def write(ring: Ring, *indices: int) -> None:
    for index in indices:
        ring.write((index, index, 0, 0, 0, index, 0, 0, 0, 0, 1, 0, 0, 0, 0))


def test_records_come_out_once_and_in_order() -> None:
    ring = Ring(capacity=4)
    taken: list[int] = []
    for index in range(11):
        write(ring, index)
        if index % 3 == 2:
            taken += ring.take()["index"].tolist()
            ring.flushed()
    taken += ring.take()["index"].tolist()
    assert taken == list(range(11))


def test_a_full_ring_refuses_rather_than_overwrites() -> None:
    ring = Ring(capacity=3)
    write(ring, 0, 1, 2)
    with pytest.raises(RingFull):
        write(ring, 3)
    assert ring.take()["index"].tolist() == [0, 1, 2]
    with pytest.raises(RingFull):  # taken, but no sink has it yet
        write(ring, 3)
    ring.flushed()
    write(ring, 3)
    assert ring.take()["index"].tolist() == [3]


@pytest.mark.parametrize("unflushed", range(6))
def test_a_killed_process_leaves_what_no_sink_had(tmp_path: Path, unflushed: int) -> None:
    path = tmp_path / "rank-0003.ring"
    script = f"""
import os, signal
from ddpviz.probe.ring import Ring
ring = Ring(5, 3, {str(path)!r})
for index in range(20 + {unflushed}):
    if index and index <= 20 and index % 4 == 0:
        ring.take(); ring.flushed()
    ring.write((index, index, 0, 0, 0, index, 0, 0, 3, 0, 1, 0, 0, 0, 0))
    if index == 19:
        ring.take(); ring.flushed()
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=os.getcwd(), timeout=60)
    assert done.returncode == -signal.SIGKILL
    records, rank = read_ring(path)
    assert rank == 3
    assert records["index"].tolist() == list(range(20, 20 + unflushed))


def test_a_ring_of_a_killed_process_is_kept_beside_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "rank-0000.ring"
    first = Ring(8, 0, path)
    write(first, 7)
    second = Ring(8, 0, path)
    write(second, 8)
    assert read_ring(tmp_path / "rank-0000.ring.1")[0]["index"].tolist() == [7]
    assert read_ring(path)[0]["index"].tolist() == [8]


def test_a_closed_ring_leaves_a_file_only_where_something_is_in_it(tmp_path: Path) -> None:
    for flushed in (True, False):
        path = tmp_path / f"{flushed}.ring"
        ring = Ring(8, 0, path)
        write(ring, 1)
        ring.take()
        if flushed:
            ring.flushed()
        ring.close()
        assert path.exists() is not flushed


@pytest.mark.parametrize("cut", [0, 5, 63, 64, 100])
def test_a_cut_or_foreign_ring_is_refused_in_a_sentence(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "rank-0000.ring"
    write(Ring(8, 0, path), 1)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ValueError, match=str(path)):
        read_ring(path)
    path.write_bytes(b"something else entirely" * 30)
    with pytest.raises(ValueError, match="not a ddpviz ring"):
        read_ring(path)


def test_record_layout_is_the_structs() -> None:
    ring = Ring(capacity=2)
    ring.write((1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))
    record = ring.take()[0]
    values = [int(record[name]) for name in (RECORD.names or ())]
    assert values == [*range(1, 16), 1]  # spare: the lap
    assert isinstance(record, np.void)


def ready(ring: Ring, step: int, times: list[int]) -> None:
    ring.write_ready((1000, 9000, 0, step, step, len(times), -1, 0, 0, 0, 255, 0, 0, 255, 0), times)


#: A time whose bytes look like a slot that announces packed times.
TRAP = int.from_bytes(b"\xff" * 7, "little")


def test_packed_times_come_out_as_records_wherever_they_lie_in_the_ring() -> None:
    """At every place in the ring, also where it ends in the middle of the numbers."""
    ring = Ring(capacity=11)
    for step in range(40):
        write(ring, step)
        ready(ring, step, [5, 0, TRAP, 7, 8, 9, TRAP, 11])
        records = ring.take()
        ring.flushed()
        assert records["kind"].tolist() == [1] + [int(Kind.GRAD_READY)] * 7
        assert records["index"].tolist() == [step, 0, 2, 3, 4, 5, 6, 7]
        assert (records["begin_ns"][1:] - 1000).tolist() == [5, TRAP, 7, 8, 9, TRAP, 11]
        assert (records["step"][1:] == step).all() and (records["iteration"][1:] == step).all()


def test_more_times_than_the_ring_holds_go_out_as_records() -> None:
    taken: list[np.ndarray] = []

    def make_room() -> None:
        taken.append(ring.take())
        ring.flushed()

    ring = Ring(capacity=4, make_room=make_room)
    ready(ring, 0, list(range(1, 41)))
    make_room()
    records = np.concatenate(taken)
    assert records["index"].tolist() == list(range(40))
    assert (records["begin_ns"] - 1000).tolist() == list(range(1, 41))


@pytest.mark.parametrize("capacity", [29, 30, 31, 32])
@pytest.mark.parametrize("unflushed", [0, 1, 5])
def test_packed_times_survive_a_kill(tmp_path: Path, unflushed: int, capacity: int) -> None:
    path = tmp_path / "rank-0000.ring"
    script = f"""
import os, signal
from ddpviz.probe.ring import Ring
ring = Ring({capacity}, 0, {str(path)!r})
for step in range(20 + {unflushed}):
    ring.write_ready((0, 0, 0, step, 0, 8, -1, 0, 0, 0, 255, 0, 0, 255, 0), [{TRAP}] * 8)
    ring.write((0, 0, 0, step, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0))
    if step <= 19:
        ring.take(); ring.flushed()
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=os.getcwd(), timeout=60)
    assert done.returncode == -signal.SIGKILL
    records, _ = read_ring(path)
    expected = [step for step in range(20, 20 + unflushed) for _ in range(9)]
    assert records["step"].tolist() == expected


def test_a_write_in_the_middle_of_another_waits_for_it() -> None:
    """As of a signal handler, which runs on the thread that it interrupts."""
    ring = Ring(capacity=8)

    class Interrupting:
        def __index__(self) -> int:
            write(ring, 7)
            return 1

    time_ns: Any = Interrupting()
    ring.write((time_ns, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0))
    assert ring.take()["index"].tolist() == [1, 7]


def test_a_row_that_does_not_fit_its_fields_is_the_only_one_lost() -> None:
    ring = Ring(capacity=8)
    with pytest.raises(struct.error):
        ring.write((2**70, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0))
    write(ring, 3)
    assert ring.take()["index"].tolist() == [3]


@pytest.mark.parametrize("before", range(6))
def test_ready_times_of_more_than_half_a_ring_go_in(before: int) -> None:
    taken: list[np.ndarray] = []

    def make_room() -> None:
        taken.append(ring.take())
        ring.flushed()

    ring = Ring(capacity=6, make_room=make_room)
    write(ring, *range(before))
    make_room()
    ready(ring, 0, list(range(1, 19)))
    make_room()
    assert np.concatenate(taken)["index"].tolist() == [*range(before), *range(18)]


def test_a_write_in_the_middle_of_packed_times_comes_after_them() -> None:
    ring = Ring(capacity=32)

    class Interrupting:
        def __index__(self) -> int:
            write(ring, 7)
            return 5

    times: list[Any] = [Interrupting(), 6, 8]
    ready(ring, 0, times)
    assert ring.take()["index"].tolist() == [0, 1, 2, 7]


@pytest.mark.parametrize("seed", range(4))
def test_whatever_came_and_went_its_file_has_what_no_sink_had(tmp_path: Path, seed: int) -> None:
    """Over more laps than the byte that counts them, with slots that long nobody wrote to."""
    choose = random.Random(seed)
    path = tmp_path / "rank-0003.ring"
    ring = Ring(40, 3, path)
    waiting: list[int] = []
    written = 0
    for _ in range(3_000):
        few = range(written, written + choose.choice([1, 1, 1, 2, 30]))
        if len(waiting) + len(few) > 40 or choose.random() < 0.4:
            assert ring.take()["index"].tolist() == waiting
            if late := choose.random() < 0.2 and len(waiting) < 40:
                write(ring, written)  # between the two: it has no sink yet
            ring.flushed()
            waiting = [written] if late else []
            written += late
            few = range(written, written + 1)
        write(ring, *few)
        waiting += few
        written = few.stop
        if choose.random() < 0.05:
            assert read_ring(path)[0]["index"].tolist() == waiting
    assert ring.written == written


def test_a_ring_that_was_emptied_goes_on_in_the_same_memory() -> None:
    ring = Ring(capacity=1000)
    for index in range(50):
        write(ring, *range(10 * index, 10 * index + 10))
        ring.take()
        ring.flushed()
    assert np.count_nonzero(ring._slots["kind"]) == 10
