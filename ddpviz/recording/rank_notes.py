"""The notes of one rank's file, by the batch that brought them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from ddpviz.events import Note, note_from_json
from ddpviz.recording.attachments import UNNUMBERED, attachment_key

#: Lines of a file that are each told of; the rest is counted.
_MOST_TOLD = 5
#: Attachment and sequence of a batch.
Place = tuple[int, int]


class RankNotes:
    """What the file has; lines that are written while records are read are read when they lack."""

    def __init__(self, path: Path) -> None:
        self.path = path
        #: The key of every attachment whose Process note is there.
        self.keys: dict[int, tuple[str, int, int]] = {}
        self._of: dict[Place, list[Note]] = {}
        self._read_bytes = 0
        self._lines = 0
        self._left_out: list[str] = []
        self._torn = ""  # what is wrong with the last line, which may be cut, or being written
        self._lacking = 0  # batches of which there are too few
        self._newest: dict[int, int] = {}
        self._read()

    def take(self, place: Place, expected: int = 0) -> tuple[Note, ...]:
        """The notes of a batch, once. ``expected``: how many it brought, as its records say; of
        several outside the numbering, which share their place, the first has all of them."""
        if place[1] < 0:
            expected = 0
        if len(self._of.get(place, ())) < expected:
            self._read()
        found = tuple(self._of.pop(place, ()))
        self._lacking += len(found) < expected
        return found

    def left(self, before: int) -> list[Place]:
        """Batches of the attachments before that one whose notes nobody took, in order."""
        return sorted(place for place in self._of if place[0] < before)

    def settle(self) -> None:
        """Once more, where the last line may have been being written."""
        if self._torn:
            self._read()

    def newest(self, attachment: int) -> int:
        """The last batch of an attachment that brought notes, whoever took them."""
        return self._newest.get(attachment, UNNUMBERED)

    def of(self, place: Place) -> list[Note]:
        """The notes of a batch that nobody took."""
        return self._of.get(place, [])

    def each(self) -> Iterator[Note]:
        """The notes of all batches that nobody took."""
        return (note for found in self._of.values() for note in found)

    @property
    def last(self) -> int:
        """The last attachment with notes that nobody took, -1 for none."""
        return max((place[0] for place in self._of), default=-1)

    @property
    def remarks(self) -> list[str]:
        """A sentence for every line that was left out, and for notes that are not there."""
        told = [*self._left_out[:_MOST_TOLD], *([self._torn] if self._torn else [])]
        if len(self._left_out) > _MOST_TOLD:
            more = len(self._left_out) - _MOST_TOLD
            told.append(f"left out {more} more lines of {self.path.name}")
        if self._lacking and self.path.exists() and not told:
            batches = "a batch" if self._lacking == 1 else f"{self._lacking} batches"
            told.append(f"{self.path.name} has not all notes of {batches}: names or plans may lack")
        return told

    @property
    def complete(self) -> bool:
        """Whether nothing is known to be missing."""
        return self.path.exists() and not self.remarks

    def _read(self) -> None:
        """What has come since."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._read_bytes)
            data = file.read()
        self._torn = ""
        *whole, rest = data.split(b"\n")
        for line in whole:
            if wrong := self._add(line):
                self._left_out.append(wrong)
        self._read_bytes += len(data) - len(rest)
        if rest and not (wrong := self._add(rest)):
            self._read_bytes += len(rest)
        elif rest:
            self._lines -= 1
            self._torn = wrong

    def _add(self, line: bytes) -> str:
        """What is wrong with a line, "" for nothing."""
        self._lines += 1
        if not line:
            return ""
        try:
            data = json.loads(line)
            if not isinstance(data, dict) or not ("batch" in data or "attachment" in data):
                raise ValueError("found no note of a batch")
            # Until it had a name of its own, it stood among the note's fields.
            attachment, sequence = data.get("batch") or (data["attachment"], data["sequence"])
            place = attachment, sequence
            if not all(type(one) is int and UNNUMBERED <= one < 2**31 for one in place):
                raise ValueError(f"found {place!r} as attachment and sequence")
            note = note_from_json(data)
        except (
            *(ValueError, KeyError, TypeError, AttributeError),
            *(RecursionError, OverflowError),
        ) as error:
            return f"left out line {self._lines} of {self.path.name}: {error}"
        self._of.setdefault(place, []).append(note)
        self._newest[attachment] = max(sequence, self._newest.get(attachment, sequence))
        key = attachment_key([note])
        if key is not None:
            self.keys[attachment] = key
        return ""
