"""Which batches are new, which are missing, and ids that stay apart when a rank begins again.

A rank that restarts counts batches, steps, labels, modules, groups and graphs from 0 again. In a
recording the later *attachment* continues after the earlier one: its steps follow on, its ids are
new.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable

import numpy as np

from ddpviz.events import (
    NO_GROUP,
    NO_MODULE,
    Batch,
    Buffers,
    Compiled,
    Configuration,
    Failure,
    Fingerprints,
    Graph,
    GraphBreak,
    Group,
    Kind,
    Label,
    Module,
    Note,
    Parted,
    Plan,
    Process,
    Projections,
    Recompile,
    Split,
    Stall,
    StateRead,
    Strides,
    Unavailable,
    Unused,
    Walk,
)

#: Notes of a step and a module, taken in some steps.
_SAMPLED = (Fingerprints, Parted, Strides, Projections, StateRead)

#: ``Batch.sequence`` of records that came outside the numbering: read back from a ring file.
UNNUMBERED = -1


@dataclasses.dataclass(frozen=True)
class Offsets:
    """What is added to the ids and steps of an attachment."""

    step: int = 0
    label: int = 0
    module: int = 0
    group: int = 0
    graph: int = 0

    def records(self, records: np.ndarray) -> np.ndarray:
        """The records as the recording numbers them; the same array where nothing changes.

        An id that its field cannot hold becomes "none" (label 0), never another one's id.
        """
        if self == Offsets():
            return records
        shifted = records.copy()
        shifted["step"][records["step"] >= 0] += self.step
        for field, none, limit, offset in (
            ("label", 0, 65_536, self.label),
            ("module", NO_MODULE, NO_MODULE, self.module),
            ("group", NO_GROUP, NO_GROUP, self.group),
        ):
            ids = records[field].astype(np.int64)
            moved = np.where(ids == none, none, ids + offset)
            shifted[field] = np.where(moved >= limit, none, moved)
        shifted["index"][records["kind"] == Kind.GRAPH] += self.graph
        return shifted

    def note(self, note: Note) -> Note:
        """The note as the recording numbers it."""
        if self == Offsets():
            return note
        if isinstance(note, Label):
            return dataclasses.replace(note, id=note.id + self.label if note.id else 0)
        if isinstance(note, Group):
            return dataclasses.replace(note, id=note.id + self.group)
        if isinstance(note, Module):
            return dataclasses.replace(note, id=note.id + self.module)
        if isinstance(note, (Failure, Walk, *_SAMPLED)) and note.step >= 0:
            note = dataclasses.replace(note, step=note.step + self.step)
        if isinstance(note, (Plan, Configuration, Unavailable, Unused, Buffers, Walk, *_SAMPLED)):
            note = dataclasses.replace(note, module=note.module + self.module)
        if isinstance(note, Stall):
            step = note.step + self.step if note.step >= 0 else note.step
            group = note.group if note.group == NO_GROUP else note.group + self.group
            note = dataclasses.replace(note, step=step, group=group)
        return self._of_compiling(note)

    def _of_compiling(self, note: Note) -> Note:
        if isinstance(note, (Compiled, Graph, Split, GraphBreak, Recompile)):
            module = note.module if note.module == NO_MODULE else note.module + self.module
            note = dataclasses.replace(note, module=module)
        if isinstance(note, Graph):
            parent = note.parent if note.parent < 0 else note.parent + self.graph
            note = dataclasses.replace(note, id=note.id + self.graph, parent=parent)
        if isinstance(note, Split):
            graphs = tuple(one + self.graph for one in note.graphs)
            note = dataclasses.replace(note, graph=note.graph + self.graph, graphs=graphs)
        return note


class Attachment:
    """One rank's run of batches from 0: what has come, what is missing.

    ``ordinal``: 0 for the rank's first attachment. ``key``: see :func:`attachment_key`, None
    until it is known. ``salvaged``, ``salvaged_notes``: what came outside the numbering, and may
    come again in its batch.
    """

    def __init__(self, ordinal: int, key: Hashable | None, offsets: Offsets) -> None:
        self.ordinal = ordinal
        self.key = key
        self.offsets = offsets
        self.salvaged: set[bytes] = set()
        self.salvaged_notes: list[Note] = []
        self._next = 0
        self._holes: list[tuple[int, int]] = []  # first and last sequence missing

    def lacks(self, sequence: int) -> bool:
        """Whether the batch of this number has not come yet."""
        return sequence >= self._next or any(a <= sequence <= b for a, b in self._holes)

    def admit(self, sequence: int) -> int | None:
        """None for a batch seen before; else how many more are missing since: 0, n, or -1 for
        a batch that had been missed and comes late."""
        if sequence >= self._next:
            missing = sequence - self._next
            if missing:
                self._holes.append((self._next, sequence - 1))
            self._next = sequence + 1
            return missing
        for position, (first, last) in enumerate(self._holes):
            if first <= sequence <= last:
                rest = [(first, sequence - 1), (sequence + 1, last)]
                self._holes[position : position + 1] = [(a, b) for a, b in rest if a <= b]
                return -1
        return None

    def not_salvaged(self, batch: Batch) -> Batch:
        """The batch less what was salvaged before it came."""
        records, notes = batch.records, batch.notes
        if self.salvaged:
            new = [row not in self.salvaged for row in rows_as_bytes(records)]
            records = records[np.array(new, bool)]
        if self.salvaged_notes:
            notes = tuple(note for note in notes if note not in self.salvaged_notes)
        return Batch(batch.rank, batch.sequence, records, notes)


class Attachments:
    """All attachments of a recording, by rank. The caller holds the lock."""

    def __init__(self) -> None:
        self._by_rank: dict[int, list[Attachment]] = {}
        self._current: dict[int, Attachment] = {}
        self._offsets = [Offsets()]  # of the n-th attachment, the same on every rank
        self._most = Offsets()  # highest label id so far, and the next module, group, graph id

    def of(self, batch: Batch, source: Hashable | int | None, last_step: int) -> Attachment:
        """The attachment this batch belongs to, made where it is new.

        ``source``: for batches from a file, the attachment's key or, where its notes were lost,
        its ordinal. Without it batch 0 says it by its Process note, and what follows belongs to
        the attachment that spoke last. ``last_step``: of the recording so far.
        """
        known = self._by_rank.setdefault(batch.rank, [])
        current = self._current.get(batch.rank)
        live = source is None
        if live and batch.sequence == 0:
            source = attachment_key(batch.notes)
        if source is None and current is not None:
            return current
        if isinstance(source, int):
            found = known[source] if source < len(known) else None
            source = None
        else:
            found = next((one for one in known if one.key == source), None)
        if found is None and current is not None and current.key is None and current.lacks(0):
            current.key, found = source, current  # its batch 0 comes only now
        if found is None:
            found = Attachment(len(known), source, self._offsets_of(len(known), last_step))
            known.append(found)
            live = True
        if live:
            self._current[batch.rank] = found
        return found

    def _offsets_of(self, ordinal: int, last_step: int) -> Offsets:
        while len(self._offsets) <= ordinal:
            most = self._most
            self._offsets.append(dataclasses.replace(most, step=last_step + 1))
        return self._offsets[ordinal]

    def seen(self, notes: Iterable[Note]) -> None:
        """Keeps count of the ids in use: ``notes`` as the recording numbers them."""
        for note in notes:
            most = self._most
            if isinstance(note, Label):
                self._most = dataclasses.replace(most, label=max(most.label, note.id))
            elif isinstance(note, Module):
                self._most = dataclasses.replace(most, module=max(most.module, note.id + 1))
            elif isinstance(note, Group):
                self._most = dataclasses.replace(most, group=max(most.group, note.id + 1))
            elif isinstance(note, Graph):
                self._most = dataclasses.replace(most, graph=max(most.graph, note.id + 1))


def attachment_key(notes: Iterable[Note]) -> tuple[str, int, int] | None:
    """What tells one attachment from another: host, process, and when it began in ns."""
    found = [note for note in notes if isinstance(note, Process)]
    return (found[-1].hostname, found[-1].pid, found[-1].started_ns) if found else None


def rows_as_bytes(records: np.ndarray) -> list[bytes]:
    """Each record as its bytes, to compare whole records: but for ``spare``, which a ring uses."""
    records = records.copy()
    records["spare"] = 0
    data, size = records.tobytes(), records.dtype.itemsize
    return [data[at : at + size] for at in range(0, len(data), size)]
