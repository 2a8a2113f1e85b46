"""What a walk is made of: stations, one inside the other, each with what is known of it."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator
from typing import Any

from ddpviz.explain import lines as sources
from ddpviz.explain.knowledge import Entry
from ddpviz.explain.lines import Source


class Seen(enum.Enum):
    """How a station is known to have been passed."""

    #: A span that every recording has.
    RECORDED = "recorded"
    #: A function or a builtin that was seen to run.
    RAN = "ran"
    #: C++ that nothing outside sees; ``detail`` says what it left.
    SHOWN = "shown"
    #: A collective: its launch and its end.
    COLLECTIVE = "collective"


@dataclasses.dataclass(frozen=True)
class Station:
    """``begin_ns``, ``end_ns``: epoch, 0 where not known; of a SHOWN one the first and the last
    thing that shows it. ``function``, ``file``: as in :class:`~ddpviz.events.Frame`, "" where
    there is none. ``called_at``: file and line that it was called from, where that is known.
    """

    name: str
    seen: Seen
    begin_ns: int
    end_ns: int
    detail: str
    entry: Entry | None
    file: str
    function: str
    line: int
    called_at: tuple[str, int] | None
    stations: tuple[Station, ...]

    @property
    def source(self) -> Source | None:
        """Its lines in the installed torch; None for C++, builtins and what is not there."""
        if not self.file.endswith(".py"):
            return None
        return sources.source(self.file, self.function, self.line)

    @property
    def place(self) -> str:
        """File and line in the installed torch; "near line" where that is only about right."""
        found = self.source
        if found is not None:
            return f"{found.file}:{found.first_line}"
        file, line, known = self._in_cpp
        if not file:
            return ""
        return f"{file}:{line}" if known else f"{file} near line {line}"

    @property
    def link(self) -> str:
        """The same on the web, at the installed torch's revision."""
        found = self.source
        if found is not None:
            return found.link
        file, line, _ = self._in_cpp
        return sources.link(file, line)

    @property
    def article_link(self) -> str:
        """The same at the article's commit: there, or near there where ``entry.derived``; the file
        where the line there is not known."""
        one = self.entry
        if one is None or not one.file:
            return ""
        return sources.article_link(one.file, one.article_line)

    @property
    def call(self) -> str:
        """The line of torch that called it; "" where that is not known."""
        return "" if self.called_at is None else sources.line_of(*self.called_at)

    @property
    def _in_cpp(self) -> tuple[str, int, bool]:
        """File, line, and whether that is known to be it; no file where it is no C++."""
        one = self.entry
        at = one.line(sources.installed().version) if one is not None and one.cpp else None
        return ("", 0, False) if one is None or at is None else (one.file, *at)

    def all(self) -> Iterator[tuple[int, Station]]:
        """This one and all inside it, in order, with how deep they stand."""
        yield 0, self
        for inner in self.stations:
            yield from ((depth + 1, one) for depth, one in inner.all())


@dataclasses.dataclass(frozen=True)
class Walk:
    """One step of one rank. ``begin_ns``, ``end_ns``: epoch. ``profiled``: with the functions that
    ran, not the recorded spans alone. ``torch``: the version that was recorded. ``remarks``: what
    a reader should know of this walk, a sentence each.

    ``str(walk)`` is for a terminal; a notebook shows it with torch's lines to unfold.
    """

    step: int
    rank: int
    begin_ns: int
    end_ns: int
    profiled: bool
    torch: str
    remarks: tuple[str, ...]
    stations: tuple[Station, ...]

    def all(self) -> Iterator[tuple[int, Station]]:
        """Every station in order, with how deep it stands."""
        for one in self.stations:
            yield from one.all()

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON has it. Times in ms since the step began, null where not known."""
        from ddpviz.explain import as_json

        return as_json.walk(self)

    def to_html(self) -> str:
        """A page of its own that works offline."""
        from ddpviz.explain import html

        return html.page(self)

    def _repr_html_(self) -> str:
        from ddpviz.explain import html

        return html.fragment(self)

    def __repr__(self) -> str:
        stations = sum(1 for _ in self.all())
        return (
            f"<Walk: step {self.step}, rank {self.rank}, {stations} stations; print() tells them>"
        )

    def __str__(self) -> str:
        from ddpviz.explain import text

        return text.walk(self)
