"""A recording: everything the ranks said, in memory with a bound, on disk where asked."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ddpviz.events import Batch
from ddpviz.recording import files, reading, saving, store
from ddpviz.recording.intake import Intake, Taken
from ddpviz.recording.subscribers import Subscribers
from ddpviz.recording.trials import Trial, read_trials, write_trials
from ddpviz.recording.writing import RankWriter

if TYPE_CHECKING:
    import pandas as pd

#: Records kept in memory unless said otherwise (520 MB).
DEFAULT_BOUND = 10_000_000

_NoteType = TypeVar("_NoteType")
_log = logging.getLogger("ddpviz")


class Recording:
    """What ranks recorded. Any thread may append, any thread may read, at any time.

    ``bound``: records kept in memory; past it the oldest go (``dropped`` counts them).
    ``directory``: where every batch is also written as it comes, so that what memory drops is
    still on disk; new or empty, and not one that the ranks write to themselves.
    """

    def __init__(self, bound: int = DEFAULT_BOUND, directory: str | Path | None = None) -> None:
        self._store = store.Store(bound)
        self._intake = Intake(self._store)
        self._lock = threading.Lock()  # of the intake; never held while a reader filters
        self._subscribers = Subscribers()
        self._remarks: list[str] = []
        self._writers: dict[int, RankWriter] = {}
        #: What the last comparison ran, in turns; empty before.
        self.trials: tuple[Trial, ...] = ()
        self._compared: Any = None
        self.directory = Path(directory) if directory is not None else None
        if self.directory is not None:
            saving.refuse_recording(self.directory)
            files.describe(self.directory)

    # --- in ------------------------------------------------------------------------------------

    def append(self, batch: Batch) -> None:
        """Takes a batch in, whatever thread it comes from.

        A batch seen before is ignored. A jump in ``sequence`` appends a GAP record whose
        ``index`` is the number of batches missing; a missing batch that comes late is taken in
        with a GAP record of index -1, so that the indices sum to what is missing still.
        Batch 0 with a new Process note begins a new attachment of its rank: its steps continue
        after :attr:`last_step`, its labels, modules and groups get new ids.
        Raises ValueError for records that are not of dtype RECORD.
        """
        self._append(batch, None)

    def merge(self, path: str | Path) -> None:
        """Takes in what a directory holds and this recording does not, ring files included.

        For the directory that the ranks of this recording write to: after a rank was killed, its
        files have what never reached this process. Merge before that rank begins again, or its
        last steps share their numbers with the new ones. Raises as :func:`load`.
        """
        directory = Path(path)
        dropped = reading.check(directory)
        remarks: list[str] = []
        if dropped:
            remarks.append(f"{dropped} older records were no longer in memory when it was saved")
        for read in reading.read_directory(directory, remarks):
            self._append(read.batch, read.source)
        self.trials = self.trials or read_trials(directory, remarks)
        with self._lock:
            self._remarks += [remark for remark in remarks if remark not in self._remarks]

    def remark(self, sentence: str) -> None:
        """Adds to :attr:`remarks` what a reader should know of where this came from."""
        with self._lock:
            self._remarks.append(sentence)

    def _append(self, batch: Batch, source: Hashable | int | None) -> None:
        with self._lock:
            taken = self._intake.take(batch, source)
            if taken is None:
                return
            if self.directory is not None:
                self._write(taken, self.directory)
        self._subscribers(taken.stored)

    def _write(self, taken: Taken, directory: Path) -> None:
        rank = taken.raw.rank
        try:
            if rank not in self._writers:
                self._writers[rank] = RankWriter(directory, rank)
            self._writers[rank].write(taken.raw, taken.ordinal)
        except OSError as error:
            self._remarks.append(
                f"could not write to {directory} ({error}): "
                "what came after is in memory only, save() it elsewhere"
            )
            _log.warning(self._remarks[-1])
            self.directory = None

    # --- out -----------------------------------------------------------------------------------

    def window(
        self,
        begin_ns: int,
        end_ns: int,
        kinds: Iterable[int] | int | None = None,
        ranks: Iterable[int] | int | None = None,
    ) -> np.ndarray:
        """Records in memory that overlap [begin_ns, end_ns] (epoch), both ends included.

        A record spans begin … end; one whose end is unknown (0) counts as a point. A copy of
        dtype RECORD, in the order of arrival: a span is recorded at its end.
        """
        return store.window(self._store.chunks(), begin_ns, end_ns, kinds, ranks)

    def records(
        self,
        kinds: Iterable[int] | int | None = None,
        ranks: Iterable[int] | int | None = None,
        steps: Iterable[int] | int | None = None,
    ) -> np.ndarray:
        """All records in memory, or those of some kinds, ranks, steps: a copy, as they came."""
        return store.select(self._store.chunks(), kinds, ranks, steps)

    def notes(self, kind: type[_NoteType], rank: int | None = None) -> list[_NoteType]:
        """Notes of a type of ``ddpviz.events``, of one rank or all, in the order they came.

        Of Fingerprints and Walks memory keeps the latest, of a million tensors or frames in all.
        """
        with self._lock:
            found = list(self._intake.notes.get(kind, ()))
        return [note for of, note in found if rank in (None, of)]  # type: ignore[misc]

    def label(self, rank: int, id: int) -> str:
        """Text of a label id; empty for id 0 and for one whose note was lost."""
        return self._intake.labels.get((int(rank), int(id)), "")

    def subscribe(self, callback: Callable[[Batch], None]) -> Callable[[], None]:
        """Calls ``callback`` with every batch taken in from now on; returns what ends that.

        The batch is numbered as this recording is, a GAP record in front where one is due
        (sequence -1: read from a ring file). It runs on the appending thread, so it should be
        quick; it may read this recording. What it raises is logged once and goes no further.
        """
        return self._subscribers.add(callback)

    @property
    def ranks(self) -> list[int]:
        """Ranks heard of."""
        with self._lock:
            return sorted(self._intake.ranks)

    @property
    def last_step(self) -> int:
        """The highest step so far, -1 before the first."""
        return self._store.last_step

    @property
    def begin_ns(self) -> int:
        """The earliest begin of all records, dropped ones included; 0 while there is none."""
        return self._store.begin_ns

    @property
    def end_ns(self) -> int:
        """The latest time in any record; 0 while there is none."""
        return self._store.end_ns

    @property
    def dropped(self) -> int:
        """Records that memory no longer has (on disk still, where a directory was given)."""
        return self._store.dropped

    @property
    def missing(self) -> dict[int, int]:
        """Batches by rank that never came, so far."""
        with self._lock:
            return {rank: count for rank, count in self._intake.missing.items() if count}

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is missing, or was left out when files were read or written, a sentence each."""
        gaps = [
            f"batches of rank {rank} that never arrived, with all that they held: {count}"
            for rank, count in sorted(self.missing.items())
        ]
        with self._lock:
            return (*gaps, *self._remarks)

    @property
    def memory_bytes(self) -> int:
        """Memory that the records take."""
        return self._store.memory_bytes

    def __len__(self) -> int:
        """Records in memory."""
        return len(self._store)

    def __repr__(self) -> str:
        return (
            f"<Recording: {len(self)} records of {len(self.ranks)} ranks, "
            f"last step {self.last_step}, {self.dropped} dropped>"
        )

    # --- disk ----------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Writes this recording to a directory that holds none yet.

        With a directory of its own all records are copied from there, else those in memory are
        written. Raises FileExistsError where there is a recording already.
        """
        target = Path(path)
        saving.refuse_recording(target)
        if self.directory is not None:
            saving.copy(self.directory, target)
        else:
            self._save(target)
        if self.trials:
            write_trials(target, self.trials)

    def _save(self, target: Path) -> None:
        with self._lock:
            notes = [item for found in self._intake.notes.values() for item in found]
            ranks, chunks, dropped = sorted(self._intake.ranks), self._store.chunks(), self.dropped
        saving.write(target, ranks, notes, chunks, dropped)

    def close(self) -> None:
        """Closes the files of its directory; idempotent. Appending opens them again."""
        with self._lock:
            for writer in self._writers.values():
                writer.close()
            self._writers.clear()

    # --- tables and figures: what stands above this folder, imported when asked for ---------------

    def steps(self) -> pd.DataFrame:
        """See :func:`ddpviz.analysis.steps`."""
        from ddpviz import analysis

        return analysis.steps(self)

    def buckets(self, step: int | None = None) -> pd.DataFrame:
        """See :func:`ddpviz.analysis.buckets`."""
        from ddpviz import analysis

        return analysis.buckets(self, step)

    def collectives(self) -> pd.DataFrame:
        """See :func:`ddpviz.analysis.collectives`."""
        from ddpviz import analysis

        return analysis.collectives(self)

    def buffers(self) -> pd.DataFrame:
        """See :func:`ddpviz.analysis.buffers`."""
        from ddpviz import analysis

        return analysis.buffers(self)

    def overlap(self) -> pd.DataFrame:
        """See :func:`ddpviz.analysis.overlap`."""
        from ddpviz import analysis

        return analysis.overlap(self)

    def construction(self) -> pd.DataFrame:
        """See :func:`ddpviz.analysis.construction`."""
        from ddpviz import analysis

        return analysis.construction(self)

    def plans(self, rank: int = 0) -> pd.DataFrame:
        """See :func:`ddpviz.analysis.plans`."""
        from ddpviz import analysis

        return analysis.plans(self, rank)

    def plan_reasons(self, rank: int = 0) -> pd.DataFrame:
        """See :func:`ddpviz.analysis.plan_reasons`."""
        from ddpviz import analysis

        return analysis.plan_reasons(self, rank)

    def countdown(self, step: int, rank: int = 0) -> pd.DataFrame:
        """See :func:`ddpviz.analysis.countdown`."""
        from ddpviz import analysis

        return analysis.countdown(self, step, rank)

    def finalize(self, step: int | None = None) -> pd.DataFrame:
        """See :func:`ddpviz.analysis.finalize`."""
        from ddpviz import analysis

        return analysis.finalize(self, step)

    def forward_graph(self, step: int | None = None) -> pd.DataFrame:
        """See :func:`ddpviz.analysis.forward_graph`."""
        from ddpviz import analysis

        return analysis.forward_graph(self, step)

    def graphs(self, rank: int | None = None) -> pd.DataFrame:
        """See :func:`ddpviz.analysis.graphs`."""
        from ddpviz import analysis

        return analysis.graphs(self, rank)

    def compile(self, rank: int | None = None) -> pd.DataFrame:
        """See :func:`ddpviz.analysis.compile_table`."""
        from ddpviz import analysis

        return analysis.compile_table(self, rank)

    def comparison(self, trials: Sequence[Trial]) -> Any:
        """See :func:`ddpviz.analysis.comparison`. The last one is kept in :attr:`compared`."""
        self.trials, self._compared = tuple(trials), None
        return self.compared

    @property
    def compared(self) -> Any:
        """What :meth:`ddpviz.Session.compare` gave last, also of a recording that was loaded: see
        :class:`ddpviz.analysis.Comparison`. None where nothing was compared."""
        from ddpviz import analysis

        if self._compared is None and self.trials:
            self._compared = analysis.comparison(self, self.trials)
        return self._compared

    def borders(self, step: int | None = None, rank: int | None = None) -> pd.DataFrame:
        """See :func:`ddpviz.analysis.borders`."""
        from ddpviz import analysis

        return analysis.borders(self, step, rank)

    def buffer_dtypes(self, step: int | None = None) -> pd.DataFrame:
        """See :func:`ddpviz.analysis.buffer_dtypes`."""
        from ddpviz import analysis

        return analysis.buffer_dtypes(self, step)

    def buffer_values(self) -> pd.DataFrame:
        """See :func:`ddpviz.analysis.buffer_values`."""
        from ddpviz import analysis

        return analysis.buffer_values(self)

    def replicas(self) -> pd.DataFrame:
        """See :func:`ddpviz.analysis.replicas`."""
        from ddpviz import analysis

        return analysis.replicas(self)

    def waiting(self) -> Any:
        """What everyone was waiting for at the end, see :func:`ddpviz.analysis.waiting`."""
        from ddpviz import analysis

        return analysis.waiting(self)

    def audit(self) -> Any:
        """What is wrong, see :func:`ddpviz.analysis.audit.audit`. Nothing found is not all well:
        :meth:`unchecked` tells what this recording cannot tell, and why. Warns where ranks are to
        be compared and only one was recorded here, as ``attach`` without ``out`` does.
        """
        from ddpviz.analysis import audit

        if alone := audit.alone(self):
            warnings.warn(alone, stacklevel=2)
        return audit.audit(self)

    def unchecked(self) -> Any:
        """What :meth:`audit` cannot tell from this recording, see
        :func:`ddpviz.analysis.audit.not_checked`."""
        from ddpviz.analysis import audit

        return audit.not_checked(self)

    def walk(self, step: int | None = None, rank: int | None = None) -> Any:
        """See :func:`ddpviz.explain.walk`."""
        from ddpviz import explain

        return explain.walk(self, step, rank)

    def collective_name(self, record: np.void) -> str:
        """See :func:`ddpviz.analysis.naming.collective_name`."""
        from ddpviz.analysis.naming import collective_name

        return collective_name(self, record)

    def timeline(self, step: int | None = None) -> Any:
        """A Bokeh figure, see :func:`ddpviz.views.timeline.timeline`."""
        from ddpviz.views.timeline import timeline

        return timeline(self, step=step)

    def figure(self, view: str, step: int | None = None) -> Any:
        """A Bokeh figure of any view, see :func:`ddpviz.export.single.single`."""
        from ddpviz.export.single import single

        return single(self, view, step)

    def picture(self, view: str, path: str | Path, **options: Any) -> Path:
        """Draws a view as PNG or SVG, see :func:`ddpviz.export.pictures.write_picture`."""
        from ddpviz.export.pictures import write_picture

        return write_picture(self, view, path, **options)

    def slides(self, path: str | Path, **options: Any) -> Path:
        """Writes a deck of slides, see :func:`ddpviz.export.slides.write_slides`."""
        from ddpviz.export.slides import write_slides

        return write_slides(self, path, **options)


def load(path: str | Path, bound: int = DEFAULT_BOUND) -> Recording:
    """Reads a recording's directory, also while it is being written or after a crash.

    Torn tails are left out (``remarks`` says so); of more than ``bound`` records the latest stay.
    Raises FileNotFoundError, NotADirectoryError or ValueError for what is not a recording.
    """
    recording = Recording(bound)
    recording.merge(path)
    return recording
