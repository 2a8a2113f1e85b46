"""The vocabulary of events says of every kind what it is."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import numpy as np

from ddpviz.events import RECORD, Batch, Cause, Flag, Kind, Process, Stall, records
from ddpviz.recording import RankWriter, load


def test_every_kind_cause_and_flag_is_documented_where_it_stands() -> None:
    source = inspect.getsource(records)
    for vocabulary in (Kind, Cause, Flag):
        body = source[source.index(f"class {vocabulary.__name__}(") :]
        for name in vocabulary.__members__:
            found = re.search(rf"(?:^    #:? .*\n)+    {name} = ", body, re.M)
            beside = re.search(rf"^    {name} = .*  # ", body, re.M)
            assert found or beside, f"{vocabulary.__name__}.{name}"


def test_a_note_keeps_its_own_fields_on_disk(tmp_path: Path) -> None:
    """A stall has a sequence, as the batch has that brings it."""
    process = Process(0, 1, 10, "host", "2.13", "3.11", "cpu", 1, "default")
    stall = Stall(0, 3, 9, 5, 0, 42, "", ())
    writer = RankWriter(tmp_path, 0)
    writer(Batch(0, 6, np.zeros(0, RECORD), (process, stall)))
    writer.close()
    assert load(tmp_path).notes(Stall) == [stall]
