"""What a DDP module was configured with differently from the one before it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import SHARED_ID
from ddpviz.events import Configuration, Module

#: Names of what DDP holds in bytes, as its argument has them, in MiB.
_IN_BYTES = {"bucket_bytes_cap": "bucket_cap_mb", "first_bucket_bytes_cap": "first bucket's cap_mb"}
_SAME = "made again with the same settings"


@dataclasses.dataclass(frozen=True)
class Configured:
    """A rank's modules as they were configured, one configuration after the other."""

    notes: dict[int, list[Configuration]]

    def at(self, module: int, time_ns: int) -> dict[str, Any]:
        """The values in force; of a module that is not described yet its first, {} without any."""
        found = self.notes.get(module, [])
        before = [note for note in found if note.time_ns <= time_ns]
        return (before or found[:1] or [Configuration(module, 0, 0, {})])[-1].values

    def positions(self, module: int, times_ns: np.ndarray) -> tuple[list[dict[str, Any]], Any]:
        """All values of a module, at least one, and for each time which are in force."""
        found = self.notes.get(module) or [Configuration(module, 0, 0, {})]
        begins_ns = [note.time_ns for note in found]
        at = np.searchsorted(begins_ns, times_ns, side="right") - 1
        return [note.values for note in found], np.maximum(at, 0)


def configured(source: Source, rank: int) -> Configured:
    """Of modules that share an id nothing is known."""
    notes: dict[int, list[Configuration]] = {}
    for note in source.notes(Configuration, rank=rank):
        if note.module < SHARED_ID:
            notes.setdefault(note.module, []).append(note)
    for found in notes.values():
        found.sort(key=lambda note: (note.time_ns, note.version))
    return Configured(notes)


def sync_flag(values: dict[str, Any]) -> str:
    """DDP's name of the switch for the sync of buffers: another before torch 2.13."""
    return "broadcast_buffers" if "broadcast_buffers" in values else "forward_sync_buffers"


def changes(source: Source, rank: int) -> dict[int, str]:
    """By module: "bucket_cap_mb 1 → 2", against the module of the same name made before it.

    A session makes a new DDP module to change a setting. Empty for the first of a name, and where
    one of the two configurations is not known.
    """
    latest: dict[int, Configuration] = {}
    for note in source.notes(Configuration, rank=rank):
        latest[note.module] = note  # a hook that is registered later is a later version
    before: dict[str, Configuration | None] = {}
    found = {}
    for module in source.notes(Module, rank=rank):
        here, earlier = latest.get(module.id), before.get(module.name)
        found[module.id] = "" if here is None or earlier is None else _told(earlier, here)
        before[module.name] = here
    return found


def _told(earlier: Configuration, here: Configuration) -> str:
    old, new = earlier.values, here.values
    names = [name for name in [*new, *(set(old) - set(new))] if old.get(name) != new.get(name)]
    if "bucket_bytes_cap" in names and new.get("first_bucket_bytes_cap") == new["bucket_bytes_cap"]:
        names = [name for name in names if name != "first_bucket_bytes_cap"]  # it goes with the cap
    told = [
        f"{_IN_BYTES.get(name, name)} {_value(name, old.get(name))} → {_value(name, new.get(name))}"
        for name in names
    ]
    return ", ".join(told) or _SAME


def _value(name: str, value: Any) -> str:
    if name in _IN_BYTES and isinstance(value, (int, float)):
        return f"{value / 2**20:g}"
    return "none" if value in ("", None) else str(value)
