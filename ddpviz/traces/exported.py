"""What :mod:`ddpviz.traces.writing` wrote, back as the recording it was."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ddpviz.events import RECORD, VERSION, Batch, note_from_json
from ddpviz.recording import Recording
from ddpviz.traces.decoding import Event
from ddpviz.traces.errors import TraceError
from ddpviz.traces.writing import FIELDS


@dataclasses.dataclass(frozen=True)
class Exported:
    path: Path
    about: dict[str, Any]
    events: Iterable[Event]


class _Args(msgspec.Struct):
    record: tuple[int, ...] = ()
    times_ns: tuple[int, int] = (0, 0)


_ARGS = msgspec.json.Decoder(_Args)


def recording_of(found: Exported) -> Recording:
    """Raises :class:`TraceError` for one that a newer ddpviz wrote, or that was changed."""
    version = found.about.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise TraceError(
            f"found an export of version {version} in {found.path}, expected at most {VERSION}: "
            "update ddpviz"
        )
    try:
        return _recording(found)
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        raise TraceError(
            f"found an export of ddpviz in {found.path} that was changed ({error}): export it again"
        ) from None


def _recording(found: Exported) -> Recording:
    rows: dict[int, list[tuple[int, ...]]] = {int(rank): [] for rank in found.about["notes"]}
    for event in found.events:
        if event.cat == "ddpviz":
            args = _ARGS.decode(event.args)
            rows.setdefault(int(event.pid), []).append((*args.times_ns, *args.record))
    recording = Recording()
    for rank, mine in rows.items():
        records = np.zeros(len(mine), RECORD)
        for position, field in enumerate(("begin_ns", "end_ns", *FIELDS)):
            records[field] = [row[position] for row in mine]
        records["rank"] = rank
        notes = tuple(map(note_from_json, found.about["notes"].get(str(rank), ())))
        order = np.argsort(records["end_ns"], kind="stable")
        recording.append(Batch(rank, 0, records[order], notes))
    for sentence in found.about.get("remarks", ()):
        recording.remark(str(sentence)[:1000])
    return recording
