"""What a DDP module was configured with differently from the one before it."""

from __future__ import annotations

from typing import Any

from ddpviz.analysis.source import Source
from ddpviz.events import Configuration, Module

#: Names of what DDP holds in bytes, as its argument has them, in MiB.
_IN_BYTES = {"bucket_bytes_cap": "bucket_cap_mb", "first_bucket_bytes_cap": "first bucket's cap_mb"}
_SAME = "made again with the same settings"


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
