"""The knowledge base: what a function of torch, or a row of a profile, is about."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
from collections.abc import Mapping
from typing import Any

from ddpviz.explain import toml

_FILES = (
    "construction",
    "forward",
    "buffers",
    "join",
    "backward",
    "builtins",
    "reducer",
    "compile",
    "operations",
)
_TEXTS = ("title", "what", "cost")
_MORE = ("how_to_change", "risk")
_KEYS = {*_TEXTS, *_MORE, "file", "function", "name", "article_line", "derived", "class"}


@dataclasses.dataclass(frozen=True)
class Entry:
    """One function, or one row of a profile.

    ``file``: from "torch/" on, "" for a builtin or a row without source. ``function``: with its
    class. ``name``: of a profile's row, "" for a function. ``how_to_change``: "" where there is
    nothing to turn; ``risk``: of doing so, or of the thing itself. ``article_line``: where the
    article's commit has it, None where that is not known; ``derived``: worked out from its
    neighbours, not said by the article. ``shift``: by version of torch ("2.13"), what is to be
    added to ``article_line`` there. ``whole_class``: it speaks for every method of the class.
    """

    file: str
    function: str
    name: str
    title: str
    what: str
    cost: str
    how_to_change: str
    risk: str
    article_line: int | None
    derived: bool
    whole_class: bool
    shift: Mapping[str, int]

    @property
    def cpp(self) -> bool:
        """Whether its source is C++, which no installed torch has with it."""
        return self.file.endswith(".cpp")

    def line(self, version: str) -> tuple[int, bool] | None:
        """The line in this version of torch, and whether it is known to be that: else near it."""
        if self.article_line is None:
            return None
        minor = ".".join(version.split(".")[:2])
        return self.article_line + self.shift.get(minor, 0), minor in self.shift


def entry(file: str, function: str) -> Entry | None:
    """What is known of a function; None where nothing is.

    ``file``: its path, or any ending of it; "" for a builtin. ``function``: with its class or
    without ("DistributedDataParallel.forward", as profilers have it also "forward").
    """
    candidates = _base().functions
    files = [known for known in candidates if _same(known, file)]
    for known in files:
        found = candidates[known].get(function)
        if found is not None:
            return found
    for part in reversed(function.split(".")):
        for known in files:
            found = candidates[known].get(part)
            if found is not None and found.whole_class:
                return found
    return None


def operation(name: str) -> Entry | None:
    """What is known of a profile's row; None where nothing is."""
    found = _base().operations
    if name in found:
        return found[name]
    return next((one for key, one in found.items() if fnmatch.fnmatchcase(name, key)), None)


def entries() -> tuple[Entry, ...]:
    """All of them."""
    return _base().entries


@dataclasses.dataclass(frozen=True)
class _Base:
    entries: tuple[Entry, ...]
    functions: dict[str, dict[str, Entry]]
    operations: dict[str, Entry]


@functools.cache
def _base() -> _Base:
    """All files, read and checked once. Raises ValueError for one that is not as it should be."""
    files = {name: toml.read(name) for name in _FILES}
    shifts: dict[str, dict[str, int]] = {}
    for data in files.values():
        shifts |= data.get("shift", {})
    found = tuple(one for name, data in files.items() for one in _read(name, data, shifts))
    functions: dict[str, dict[str, Entry]] = {}
    operations: dict[str, Entry] = {}
    for one in found:
        if one.name:
            _once(operations, one.name, one)
        else:
            _once(functions.setdefault(one.file, {}), one.function, one)
    for known in functions.values():
        _add_short_names(known)
    return _Base(found, functions, operations)


def _once(found: dict[str, Entry], key: str, one: Entry) -> None:
    if key in found:
        raise ValueError(f"found {key} of {one.file or 'no file'} twice, expected one entry")
    found[key] = one


def _add_short_names(known: dict[str, Entry]) -> None:
    """Functions without their class, too; of several the one of DDP's own class."""
    of_ddp = "DistributedDataParallel."
    for full, one in sorted(known.items(), key=lambda item: not item[0].startswith(of_ddp)):
        known.setdefault(full.rpartition(".")[2], one)


def _read(name: str, data: dict[str, Any], shifts: dict[str, dict[str, int]]) -> list[Entry]:
    where, file = f"{name}.toml", data.get("file")
    made = [
        _made(where, {"file": file, **one}, shifts, "function") for one in data.get("entry", ())
    ]
    rows = data.get("operation", ())
    return made + [_made(where, {"file": "", **one}, shifts, "name") for one in rows]


def _made(where: str, item: dict[str, Any], shifts: dict[str, dict[str, int]], key: str) -> Entry:
    named = f"{where}, {item.get(key, 'an entry without a name')}"
    toml.check(named, item, (key, *_TEXTS), _KEYS)
    if item["file"] is None:
        raise ValueError(f"found no file for {named}, expected one, or one for all")
    if item.get("how_to_change") and not item.get("risk"):
        raise ValueError(f"found how to change {named}, expected also what that risks")
    return Entry(
        file=item["file"],
        function=item.get("function", ""),
        name=item.get("name", ""),
        **{text: item.get(text, "") for text in (*_TEXTS, *_MORE)},
        article_line=item.get("article_line"),
        derived=item.get("derived", False),
        whole_class=item.get("class", False),
        shift=shifts.get(item["file"], {}),
    )


def _same(known: str, asked: str) -> bool:
    if not known or not asked:
        return known == asked
    asked = asked.replace("\\", "/")
    return asked == known or asked.endswith(f"/{known}") or known.endswith(f"/{asked}")
