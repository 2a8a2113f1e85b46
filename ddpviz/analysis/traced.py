"""Recordings that were read from profiler traces, and what these do not tell."""

from __future__ import annotations

from ddpviz.analysis.source import Source
from ddpviz.events import Process


def from_trace(source: Source) -> bool:
    """Whether all of it comes from traces, so that what DDP did was concluded from them."""
    return {note.level for note in source.notes(Process)} == {"trace"}


def untold(source: Source, what: str) -> str:
    """Why a view of ``what`` is empty, where traces are the reason; else ""."""
    if not from_trace(source):
        return ""
    return f"a trace does not tell {what}: a session or ddpviz.attach records it"
