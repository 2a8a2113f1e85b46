"""What went wrong in a step: a failure, a rank waited for in vain, a bucket never launched."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from ddpviz.analysis.calls import arrivals, calls
from ddpviz.analysis.source import Source
from ddpviz.events import Cause, Failure, Flag, Kind, Module

#: A title holds this much of an error's text.
_MOST_CHARACTERS = 120


def trouble(source: Source, step: int, table: pd.DataFrame) -> str:
    """The sentence; empty where nothing went wrong. ``table``: :func:`buckets` of the step.

    Of several failures the first in time is told. What a rank is still in counts as well: a step
    that is being recorded is like one that was cut off.
    """
    failure = min(
        (note for note in source.notes(Failure) if note.step == step),
        key=lambda note: note.time_ns,
        default=None,
    )
    call, absent = _pending(source, step, failure)
    if failure is not None:
        message = _shortened(failure.message)
        if call is None:
            return f"rank {failure.rank} failed: {message}"
        if absent < 0:
            return f"rank {failure.rank} failed in {_what(source, call)}: {message}"
        return (
            f"rank {failure.rank} failed waiting for rank {absent}, which has not launched "
            f"{_what(source, call)}: {message}"
        )
    if call is not None and absent >= 0:
        return (
            f"rank {call['rank']} waits for rank {absent}, which has not launched "
            f"{_what(source, call)}"
        )
    if call is not None:
        return f"rank {call['rank']} has not completed {_what(source, call)}"
    return _never_launched(source, table)


def _shortened(message: str) -> str:
    """An error's first sentence, without the source positions that gloo and NCCL put in it."""
    text = re.sub(r"\[[^\[\]]*\.\w+:\d+\] *", "", message).split(". ")[0]
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"


def bucket_name(source: Source, row: pd.Series) -> str:
    """ "bucket 2", with its module's name where the rank has several. ``row``: of buckets()."""
    modules = {m.id: m.name for m in source.notes(Module, rank=int(row["rank"]))}
    of = f" of {modules.get(row['module'], 'a module')}" if len(modules) > 1 else ""
    return f"bucket {row['bucket']}{of}"


def _pending(source: Source, step: int, failure: Failure | None) -> tuple[np.void | None, int]:
    """The first collective that a rank is stuck in, of the rank that failed if one did; and the
    rank that has not launched it, -1 if none is known."""
    found = calls(source, step)
    went_on = source.records(kinds=Kind.STEP, steps=[step])["rank"]
    failed = (found["flags"] & Flag.FAILED) != 0
    stuck = (found["end_ns"] == 0) & (failed | ~np.isin(found["rank"], went_on))
    if failure is not None:
        stuck &= found["rank"] == failure.rank
    pending = found[stuck]
    if not len(pending):
        return None, -1
    pending = pending[np.argsort(pending["begin_ns"], kind="stable")]
    last_rank = arrivals(source, pending, found, False)
    absent = np.where(last_rank.last_launched_ns == 0, last_rank.last_rank, -1)
    first = int(np.argmax(absent >= 0))
    return pending[first], int(absent[first])


def _what(source: Source, call: np.void) -> str:
    op = source.label(int(call["rank"]), int(call["label"])).split(" ")[0] or "collective"
    if call["cause"] == Cause.BUCKET and call["index"] >= 0:
        return f"bucket {call['index']} ({op} {call['sequence']})"
    cause = int(call["cause"])
    name = Cause(cause).name.lower().replace("_", " ") if cause in set(Cause) else "unknown"
    return f"{op} {call['sequence']} ({name})"


def _never_launched(source: Source, table: pd.DataFrame) -> str:
    """The Reducer waits for a parameter that took no part in this backward."""
    waiting = table[table["launched_ns"].isna() & table["full_ns"].isna()]
    if waiting.empty:
        return ""
    row = waiting.iloc[0]
    return (
        f"rank {row['rank']} never launched {bucket_name(source, row)}: not all of its "
        f"{row['parameters']} parameters got a gradient"
    )
