"""What ranks that ended had recorded: their files made whole, and taken into the recording."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ddpviz.engines.ranks import this_host
from ddpviz.events import NO_GROUP, NO_MODULE, RECORD, Batch, Failure, Kind

if TYPE_CHECKING:
    from ddpviz.recording import RankWriter, Recording


class Salvage:
    """Takes what is on disk into a recording; a context manager, so that files get closed.

    What goes wrong is in :meth:`remarks`: it must not hide why the ranks ended. ``behind``: ranks
    whose last records could not be had.
    """

    def __init__(self, directory: Path, recording: Recording):
        self.behind: set[int] = set()
        self._said: list[str] = []
        self._errors: dict[str, list[str]] = {}  # what was not done, by why
        self._directory = directory
        self._recording = recording
        self._writers: dict[int, RankWriter] = {}

    def __enter__(self) -> Salvage:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            writer.close()

    def remarks(self) -> list[str]:
        """What could not be saved, and why, a sentence each."""
        return self._said + [
            f"{' and '.join(what)} ({why}): put {self._directory} right, and call "
            f"session.recording.merge({str(self._directory)!r}) before session.restart()"
            for why, what in self._errors.items()
        ]

    def take(self, ranks: Mapping[int, tuple[str, bool]]) -> None:
        """Read in what ranks had not sent. ``ranks``: the host of each (see ``this_host``), and
        whether its process is known to have ended.

        Only then its files are made whole, with what its ring holds: that cuts off what a living
        process is writing. Files of a rank that wrote them elsewhere are not made up here.
        """
        from ddpviz.recording import RankWriter
        from ddpviz.recording.files import arrow_path

        here = {}
        for rank, (host, ended) in ranks.items():
            if host != this_host() and not arrow_path(self._directory, rank).exists():
                self.behind.add(rank)
                if host:  # else it ended before it said where it is: it recorded nothing
                    self._said.append(
                        f"rank {rank} wrote its records on {host.partition('/')[0]}: what it had "
                        f"not sent yet is there, in {self._directory}"
                    )
            else:
                here[rank] = ended
        for rank, ended in here.items():
            if not ended:
                self._said.append(
                    f"rank {rank} is not known to have ended: its files were read, but not made "
                    "whole as long as it may write to them"
                )
                continue
            with self._remarking(f"the records of rank {rank} were not made whole"):
                self._writers[rank] = RankWriter(self._directory, rank)
        if here:
            self.behind |= set(here)
            with self._remarking("what had not been sent yet was not taken in"):
                self._recording.merge(self._directory)
                self.behind -= set(here)

    def note(self, failure: Failure) -> None:
        """Record a failure for a rank that cannot. ``step``: as the rank itself counts."""
        from ddpviz.recording import UNNUMBERED
        from ddpviz.recording.reading import whole_part

        row = np.zeros(1, RECORD)
        row["begin_ns"] = row["end_ns"] = failure.time_ns
        row["step"], row["rank"], row["kind"] = failure.step, failure.rank, Kind.FAILED
        row["iteration"] = row["index"] = row["sequence"] = -1
        row["module"], row["group"] = NO_MODULE, NO_GROUP
        batch = Batch(failure.rank, UNNUMBERED, row, (failure,))
        self._recording.append(batch)
        writer = self._writers.get(failure.rank)
        if writer is not None:
            with self._remarking(f"the files of rank {failure.rank} lack the failure"):
                attachments = whole_part(self._directory, failure.rank).attachments
                writer.write(batch, max(0, attachments - 1))

    @contextlib.contextmanager
    def _remarking(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            why = f"{type(error).__name__}: {error}".splitlines()[0]
            self._errors.setdefault(why, []).append(what)
