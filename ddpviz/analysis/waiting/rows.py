"""Who waits for whom: a row per rank, and all of it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd

from ddpviz.analysis.tables import table
from ddpviz.events import StackLine

_SCHEMA = {
    "rank": "int64",
    "state": "str",
    "collective": "str",
    "bytes": "Int64",
    "for_s": "float64",
    "file": "str",
    "line": "Int64",
    "function": "str",
    "text": "str",
    "parameters": "str",
}


@dataclasses.dataclass(frozen=True)
class RankWaiting:
    """One rank beside a collective that hangs.

    ``state``: "in it", "has not entered it", "is through it", "is in another" (the same number in
    the group, and not the same operation), "failed", "had ended". ``collective``: the one that it
    is in, or was in last; ``bytes``: -1 where there is none. ``for_s``: since its launch, or since
    the rank's last record. ``device``: what NCCL says of it, "" for nothing. ``at``: the line of
    the user's own code, None where it is not known.
    ``parameters``: names in the bucket, where it is one.
    """

    rank: int
    state: str
    collective: str
    bytes: int
    for_s: float
    device: str
    at: StackLine | None
    parameters: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Waiting:
    """``reason``: all of it in one sentence, "" where nobody waits. ``ranks``: one row each."""

    reason: str
    ranks: tuple[RankWaiting, ...]

    @property
    def doing(self) -> dict[int, str]:
        """By rank, the collective that it launched and that has not completed."""
        inside = ("in it", "is in another")
        return {one.rank: one.collective for one in self.ranks if one.state in inside}

    def table(self) -> pd.DataFrame:
        """A row per rank of the group: columns rank, state, collective, bytes, for_s, file, line,
        function, text (of the user's code), parameters."""
        at = [one.at or StackLine("", -1, "", "") for one in self.ranks]
        columns = {
            "rank": [one.rank for one in self.ranks],
            "state": [one.state for one in self.ranks],
            "collective": [one.collective for one in self.ranks],
            "bytes": np.array([one.bytes for one in self.ranks], np.int64),
            "for_s": [one.for_s for one in self.ranks],
            "file": [line.file for line in at],
            "line": np.array([line.line for line in at], np.int64),
            "function": [line.function for line in at],
            "text": [line.text for line in at],
            "parameters": [", ".join(one.parameters) for one in self.ranks],
        }
        return table(_SCHEMA, columns)


NOBODY = Waiting("", ())
