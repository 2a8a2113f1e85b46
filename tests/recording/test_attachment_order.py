"""Ranks that begin again get the same step numbers on disk as in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ddpviz.events import RECORD, Batch, Kind
from ddpviz.recording import RankWriter, Recording, load
from tests.recording.material import EPOCH_NS, first_notes


def steps(rank: int, begin_ns: int, numbers: list[int]) -> np.ndarray:
    records = np.zeros(len(numbers), RECORD)
    records["kind"] = Kind.STEP
    records["rank"] = rank
    records["step"] = numbers
    records["begin_ns"] = records["end_ns"] = begin_ns + np.arange(len(numbers))
    return records


def test_a_rank_that_begins_again_with_notes_alone_comes_after_the_others_last_steps(
    tmp_path: Path,
) -> None:
    """Rank 0's last record is long before rank 1's; its second life starts after both."""
    empty = np.zeros(0, RECORD)
    second_ns = EPOCH_NS + 1_000_000
    batches = [
        Batch(0, 0, empty, first_notes(0)),
        Batch(1, 0, empty, first_notes(1)),
        Batch(0, 1, steps(0, EPOCH_NS + 10, [0, 1])),
        Batch(1, 1, steps(1, EPOCH_NS + 500_000, [0, 1, 2, 3])),
        Batch(0, 0, empty, first_notes(0, 200, second_ns)),
        Batch(1, 0, empty, first_notes(1, 201, second_ns)),
        Batch(0, 1, steps(0, second_ns + 10, [0, 1])),
        Batch(1, 1, steps(1, second_ns + 10, [0, 1])),
    ]
    live = Recording()
    writers: dict[int, RankWriter] = {}
    for batch in batches:
        live.append(batch)
        if batch.sequence == 0:
            if batch.rank in writers:
                writers[batch.rank].close()
            writers[batch.rank] = RankWriter(tmp_path, batch.rank)
        writers[batch.rank](batch)
    for writer in writers.values():
        writer.close()
    loaded = load(tmp_path)
    for rank, wanted in ((0, [0, 1, 4, 5]), (1, [0, 1, 2, 3, 4, 5])):
        for recording in (live, loaded):
            assert recording.records(kinds=Kind.STEP, ranks=rank)["step"].tolist() == wanted
