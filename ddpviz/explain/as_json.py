"""A walk as JSON has it."""

from __future__ import annotations

from typing import Any

from ddpviz.explain import lines as sources
from ddpviz.explain.knowledge import Entry
from ddpviz.explain.station import Station, Walk


def walk(found: Walk) -> dict[str, Any]:
    """Times in ms since the step began; what is not known is null."""
    here = sources.installed()
    return {
        "step": found.step,
        "rank": found.rank,
        "ms": (found.end_ns - found.begin_ns) / 1e6,
        "functions_that_ran": found.profiled,
        "torch_recorded": found.torch,
        "torch_installed": here.version,
        "git_revision": here.git,
        "remarks": list(found.remarks),
        "stations": [_station(one, found.begin_ns) for one in found.stations],
    }


def _station(one: Station, zero_ns: int) -> dict[str, Any]:
    return {
        "name": one.name,
        "seen": one.seen.value,
        "begin_ms": (one.begin_ns - zero_ns) / 1e6 if one.begin_ns else None,
        "end_ms": (one.end_ns - zero_ns) / 1e6 if one.end_ns else None,
        "detail": one.detail or None,
        "place": one.place or None,
        "called_at": None if one.called_at is None else f"{one.called_at[0]}:{one.called_at[1]}",
        "call": one.call or None,
        "link": one.link or None,
        "article_link": one.article_link or None,
        "explanation": None if one.entry is None else explanation(one.entry),
        "stations": [_station(inner, zero_ns) for inner in one.stations],
    }


def explanation(one: Entry) -> dict[str, str]:
    """What an entry says."""
    return {
        "title": one.title,
        "what": one.what,
        "cost": one.cost,
        "how_to_change": one.how_to_change,
        "risk": one.risk,
    }
