"""The ring: nothing is lost, neither at its end nor when the process is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ddpviz.events import RECORD
from ddpviz.probe.ring import Ring, RingFull, read_ring


def write(ring: Ring, *indices: int) -> None:
    for index in indices:
        ring.write(index, index, 0, 0, 0, index, 0, 0, 0, 0, 1, 0, 0, 0, 0)


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
    ring.write(index, index, 0, 0, 0, index, 0, 0, 3, 0, 1, 0, 0, 0, 0)
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
    ring.write(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
    record = ring.take()[0]
    values = [int(record[name]) for name in (RECORD.names or ())]
    assert values == [*range(1, 16), 1]  # spare: the lap
    assert isinstance(record, np.void)
