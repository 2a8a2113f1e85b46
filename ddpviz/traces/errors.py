"""What a reader says instead of a traceback."""

from __future__ import annotations


class TraceError(ValueError):
    """A file that can't be read as a trace: what was found, what was expected, what to do."""


class NoRank(TraceError):
    """Neither a trace nor its name says whose it is."""


#: What a record's rank can hold.
MOST_RANKS = 65_535
