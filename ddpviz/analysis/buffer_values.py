"""What a sync of buffers overwrote: how far each rank's own had drifted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ddpviz.analysis.fingerprints import Moment, moments
from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import table

_SCHEMA = {
    "step": "int64",
    "iteration": "int64",
    "rank": "int64",
    "module": "int64",
    "name": "str",
    "norm_before": "float64",
    "norm_after": "float64",
    "drift": "float64",
    "overwritten": "boolean",
    "differed": "boolean",
    "unchanged": "Int64",
}


def buffer_values(source: Source) -> pd.DataFrame:
    """One row per buffer and rank of each sync of buffers in a sampled step.

    ``norm_before``, ``norm_after``: Euclidean norms around the sync, NaN where not finite;
    ``drift``: the first less the second. ``overwritten``: this rank's bytes changed in the sync,
    <NA> where one of the two was not recorded. ``differed``: ranks had different bytes before it,
    <NA> for one rank alone. ``unchanged``: how many sampled syncs before this one, without a break,
    left this rank with the same bytes as this one, and changed nothing on any rank: so often the
    same was sent for nothing; 0 where this one changed something, <NA> where that is not known.
    """
    last: dict[tuple[int, int, str], tuple[str, int]] = {}
    rows: list[dict[str, Any]] = []
    found = moments(source, "buffers before", "buffers after")
    before, after = (
        {
            (moment.step, moment.module, moment.iteration, moment.group): moment
            for moment in found
            if moment.what == what
        }
        for what in ("buffers before", "buffers after")
    )
    for key in sorted(before.keys() | after.keys()):
        rows += _of_sync(before.get(key), after.get(key), last)
    return table(_SCHEMA, {name: [row[name] for row in rows] for name in _SCHEMA})


def _of_sync(
    before: Moment | None,
    after: Moment | None,
    last: dict[tuple[int, int, str], tuple[str, int]],
) -> list[dict[str, Any]]:
    """``last``: by rank, module and name: the bytes after the sync before, and since how often."""
    some = before or after
    assert some is not None
    rows = []
    ranks = {*(before.ranks if before else ()), *(after.ranks if after else ())}
    changes = [_changes(before, after, ranks, position) for position in range(len(some.names))]
    for rank in sorted(ranks):
        for position, name in enumerate(some.names):
            hash_before, norm_before = _at(before, rank, position)
            hash_after, norm_after = _at(after, rank, position)
            rows.append(
                {
                    "step": some.step,
                    "iteration": some.iteration,
                    "rank": rank,
                    "module": some.module,
                    "name": name,
                    "norm_before": norm_before,
                    "norm_after": norm_after,
                    "drift": norm_before - norm_after,
                    "overwritten": _unequal(hash_before, hash_after),
                    "differed": _differed(before, position),
                    "unchanged": _unchanged(
                        last, (rank, some.module, name), hash_after, changes[position]
                    ),
                }
            )
    return rows


def _at(moment: Moment | None, rank: int, position: int) -> tuple[str | None, float]:
    note = None if moment is None else moment.ranks.get(rank)
    if note is None or position >= len(note.hashes):
        return None, np.nan
    norm = note.norms[position]
    return note.hashes[position], np.nan if norm is None else norm


def _unequal(one: str | None, other: str | None) -> int:
    return -1 if one is None or other is None else int(one != other)


def _differed(before: Moment | None, position: int) -> int:
    if before is None or len(before.ranks) < 2:
        return -1
    return int(len({_at(before, rank, position)[0] for rank in before.ranks}) > 1)


def _changes(before: Moment | None, after: Moment | None, ranks: set[int], position: int) -> int:
    """Whether the sync changed the tensor on any rank: 1, 0, or -1 where that is not known."""
    found = {
        _unequal(_at(before, rank, position)[0], _at(after, rank, position)[0]) for rank in ranks
    }
    return 1 if 1 in found else -1 if -1 in found else 0


def _unchanged(
    last: dict[tuple[int, int, str], tuple[str, int]],
    key: tuple[int, int, str],
    now: str | None,
    changes: int,
) -> int:
    if now is None or changes < 0:
        last.pop(key, None)
        return -1
    before, times = last.get(key, ("", -1))
    times = times + 1 if before == now and not changes else 0
    last[key] = now, times
    return times
