"""Writes a whole recording to a new directory."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ddpviz.events import RECORD, Batch, Note
from ddpviz.recording import files, store
from ddpviz.recording.writing import RankWriter


def refuse_recording(directory: Path) -> None:
    """Raises NotADirectoryError or FileExistsError where nothing should be written over."""
    if not directory.exists():
        return
    if not directory.is_dir():
        raise NotADirectoryError(f"found a file at {directory}, expected a directory to write to")
    if (directory / files.DESCRIPTION).exists() or files.ranks_in(directory):
        raise FileExistsError(
            f"found a recording at {directory} already: give another directory, or load() this one"
        )


def write(
    target: Path,
    ranks: Iterable[int],
    notes: Iterable[tuple[int, Note]],
    chunks: list[store.Chunk],
    dropped: int,
) -> None:
    """Notes and records as the recording numbers them, one attachment per rank."""
    files.describe(target, dropped)
    of_rank: dict[int, list[Note]] = {}
    for rank, note in notes:
        of_rank.setdefault(rank, []).append(note)
    for rank in ranks:
        writer = RankWriter(target, rank, compression="zstd")
        writer(Batch(rank, 0, np.empty(0, RECORD), tuple(of_rank.get(rank, ()))))
        sequence = 1
        for chunk in chunks:
            records = store.select([chunk], None, rank, None)
            if len(records):
                writer(Batch(rank, sequence, records))
                sequence += 1
        writer.close()


def copy(source: Path, target: Path) -> None:
    """A recording's files, also while they grow: records before notes, so that a record copied
    has its label copied too."""
    target.mkdir(parents=True, exist_ok=True)
    for entry in sorted(source.iterdir()):
        if entry.name == files.DESCRIPTION or files.RANK_FILE.fullmatch(entry.name):
            shutil.copyfile(entry, target / entry.name)
