"""Every collective of every rank, as a table."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ddpviz.analysis.calls import calls
from ddpviz.analysis.naming import CAUSES, label_texts
from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import check_step, row_type, rows, since_ms, table
from ddpviz.events import Flag

_SCHEMA = {
    "rank": "int64",
    "group": "int64",
    "sequence": "int64",
    "step": "int64",
    "iteration": "int64",
    "cause": "str",
    "op": "str",
    "dtype": "str",
    "bytes": "int64",
    "launched_ns": "int64",
    "done_ns": "Int64",
    "duration_ms": "float64",
    "bucket": "int64",
    "derived": "str",
}
_ROW = row_type(_SCHEMA)
#: By what is known of the end, and by what was inferred.
_DERIVED = np.array(
    [
        [",".join(filter(None, (times, of))) for of in ("", "cause", "cause,bucket")]
        for times in ("", "done_ns", "done_ns,duration_ms")
    ],
    object,
)


def collectives(source: Source, step: int | None = None) -> pd.DataFrame:
    """One row per collective and rank, in the order of rank and launch.

    ``group``: id among the rank's own groups; 254 and 255 stand for several groups, which are not
    told apart. ``cause``: lower-case name of :class:`ddpviz.events.Cause`; ``bytes``: of the
    input; ``done_ns``: <NA> where it never completed (``duration_ms`` NaN); ``bucket``: launch
    order of the bucket it reduces; ``step``, ``iteration``, ``bucket``: -1 where it belongs to
    none. ``derived``: "done_ns" where that is a lower bound, because the work was only enqueued
    then (CUDA); how long it took cannot be seen from host clocks, so ``duration_ms`` is NaN.
    "done_ns,duration_ms" where they are upper bounds: the completion was recorded late, after the
    training thread had gone on with the result (see :mod:`ddpviz.analysis.ends`). "cause", and
    "bucket" where it has one, where they were inferred: no trace says them.
    Raises ValueError for a step that was not recorded.
    """
    check_step(source, step)
    return table(_SCHEMA, collective_rows(source, calls(source, step)))


def collective_rows(source: Source, found: np.ndarray) -> np.ndarray:
    """The rows of :func:`collectives`, one for each of ``found``: :func:`calls`."""
    texts, position = label_texts(source, found)
    op, _, dtype = np.array([text.partition(" ") for text in texts], object).reshape(-1, 3).T
    enqueued = (found["flags"] & Flag.ENQUEUED) != 0
    late = (found["flags"] & Flag.DERIVED) != 0
    times = np.select([enqueued & (found["end_ns"] > 0), late], [1, 2], 0)
    inferred = ((found["flags"] & Flag.INFERRED) != 0).astype(np.intp)
    inferred *= np.where(found["index"] >= 0, 2, 1)
    duration_ms = since_ms(found["begin_ns"], found["end_ns"])
    return rows(
        _ROW,
        {
            **{name: found[name] for name in ("rank", "group", "sequence", "step", "iteration")},
            "cause": CAUSES[found["cause"]],
            "op": op[position],
            "dtype": dtype[position],
            "bytes": found["bytes"],
            "launched_ns": found["begin_ns"],
            "done_ns": found["end_ns"],
            "duration_ms": np.where(enqueued, np.nan, duration_ms),
            "bucket": found["index"],
            "derived": _DERIVED[times, inferred],
        },
    )
