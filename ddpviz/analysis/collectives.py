"""Every collective of every rank, as a table."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ddpviz.analysis.calls import calls
from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import since_ms, table
from ddpviz.events import Cause

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
}
_CAUSES = np.array(
    [Cause(n).name.lower() if n in set(Cause) else f"cause {n}" for n in range(256)], object
)


def collectives(source: Source, step: int | None = None) -> pd.DataFrame:
    """One row per collective and rank, in the order of rank and launch.

    ``group``: id among the rank's own groups; ``cause``: lower-case name of
    :class:`ddpviz.events.Cause`; ``bytes``: of the input; ``done_ns``: <NA> where it never
    completed (``duration_ms`` NaN); ``bucket``: launch order of the bucket it reduces;
    ``step``, ``iteration``, ``bucket``: -1 where it belongs to none.
    """
    found = calls(source, step)
    op, dtype = _operations(source, found)
    return table(
        _SCHEMA,
        {
            **{name: found[name] for name in ("rank", "group", "sequence", "step", "iteration")},
            "cause": _CAUSES[found["cause"]],
            "op": op,
            "dtype": dtype,
            "bytes": found["bytes"],
            "launched_ns": found["begin_ns"],
            "done_ns": found["end_ns"],
            "duration_ms": since_ms(found["begin_ns"], found["end_ns"]),
            "bucket": found["index"],
        },
    )


def _operations(source: Source, found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Operation and dtype from the labels, which are "operation dtype"."""
    pairs, inverse = np.unique(
        (found["rank"].astype(np.int64) << 16) | found["label"], return_inverse=True
    )
    texts = [source.label(pair >> 16, pair & 0xFFFF).split(" ", 1) for pair in pairs.tolist()]
    op = np.array([text[0] for text in texts], object)
    dtype = np.array([text[1] if len(text) > 1 else "" for text in texts], object)
    return op[inverse], dtype[inverse]
