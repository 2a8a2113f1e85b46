"""``data/spans.toml``: what a span is about, and which C++ a span or a builtin comes to."""

from __future__ import annotations

import dataclasses
import functools

from ddpviz.events import Cause, Kind
from ddpviz.explain import toml
from ddpviz.explain.knowledge import Entry, entries, entry

_TEXTS = ("title", "what", "cost", "how_to_change", "risk")
ALWAYS, DELAYED = "ALWAYS", "DELAYED"


@dataclasses.dataclass(frozen=True)
class Span:
    """``builtin``: under which name :func:`inside` has the stations that belong to it."""

    kind: Kind
    entry: Entry
    builtin: str


@dataclasses.dataclass(frozen=True)
class Inside:
    """A C++ station. ``shown_by``: any of these shows it; ``holds``: collectives of this cause."""

    entry: Entry
    shown_by: tuple[str, ...]
    holds: str
    only: str
    unless: str


def span(kind: int) -> Span | None:
    """What a record of this kind is about; None where it is no span of a walk."""
    return _read()[0].get(kind)


def kinds() -> list[int]:
    """All kinds that are spans of a walk."""
    return list(_read()[0])


def inside(name: str) -> tuple[Inside, ...]:
    """The stations below a span, a builtin or another station, in order."""
    return tuple(_read()[1].get(name, ()))


@functools.cache
def _read() -> tuple[dict[int, Span], dict[str, list[Inside]]]:
    data = toml.read("spans")
    spans: dict[int, Span] = {}
    for item in data["span"]:
        kind = Kind[item["kind"]]
        spans[kind] = Span(kind, _entry_of(item), item.get("builtin", ""))
    cpp = {one.function: one for one in entries() if one.cpp and one.function}
    stations: dict[str, list[Inside]] = {}
    known = {*Kind.__members__, *Cause.__members__, ALWAYS, DELAYED}
    for item in data["station"]:
        where = f"spans.toml, {item.get('function')} inside {item.get('inside')}"
        keys = ("inside", "function", "shown_by", "holds", "only", "unless")
        toml.check(where, item, keys[:3], keys)
        unknown = {*item["shown_by"], item.get("holds", ALWAYS)} - known
        if unknown or item["function"] not in cpp:
            raise ValueError(f"found {unknown or item['function']} in {where}, which is not known")
        found = Inside(
            cpp[item["function"]],
            tuple(item["shown_by"]),
            item.get("holds", ""),
            item.get("only", ""),
            item.get("unless", ""),
        )
        stations.setdefault(item["inside"], []).append(found)
    return spans, stations


def _entry_of(item: dict[str, str]) -> Entry:
    where = f"spans.toml, {item['kind']}"
    if "function" not in item:  # no function of its own
        toml.check(where, item, _TEXTS, ("kind", *_TEXTS))
        title, what, cost, change, risk = (item[text] for text in _TEXTS)
        return Entry("", "", "", title, what, cost, change, risk, None, False, False, {})
    toml.check(where, item, ("function",), ("kind", "file", "function", "builtin"))
    found = entry(item["file"], item["function"])
    if found is None:
        raise ValueError(f"found no entry for {item['function']} of {where}, expected one")
    return found
