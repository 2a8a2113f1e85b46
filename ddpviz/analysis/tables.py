"""Tables with fixed columns and dtypes, from numpy columns. Epoch time 0 means unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from ddpviz.analysis.source import Source
from ddpviz.events import NO_GROUP

#: A group's or a module's id is one byte. What comes after the 254th shares the id before "none",
#: and what a recording can number no more has "none": from this id on nothing is told apart.
SHARED_ID = NO_GROUP - 1


def table(schema: Mapping[str, str], columns: Mapping[str, Any]) -> pd.DataFrame:
    """A data frame with the schema's columns in its order; without rows, with the same dtypes.

    A ``Int64`` column is given as int64 with 0 where the time is unknown (names that end in _ns),
    else with -1, and becomes <NA> there.
    """
    filled = {name: _column(name, dtype, columns[name]) for name, dtype in schema.items()}
    made: pd.DataFrame = pd.DataFrame(filled)
    return made


def ordered(made: pd.DataFrame, *names: str) -> pd.DataFrame:
    """The table sorted by columns, rows numbered from 0."""
    result: pd.DataFrame = made.sort_values(list(names), kind="stable", ignore_index=True)
    return result


def _column(name: str, dtype: str, values: Any) -> pd.Series:
    column: pd.Series
    if dtype == "Int64":
        whole = np.asarray(values, np.int64)
        unknown = whole == (0 if name.endswith("_ns") else -1)
        column = pd.Series(pd.arrays.IntegerArray(whole.copy(), unknown))
    elif dtype == "object":
        column = pd.Series(values, dtype=object)
    else:
        column = pd.Series(np.asarray(values)).astype(dtype)
    return column


def since_ms(begin_ns: np.ndarray, end_ns: np.ndarray) -> np.ndarray:
    """``end_ns - begin_ns`` in ms (float64); NaN where one of them is unknown (0)."""
    known = (np.asarray(begin_ns) != 0) & (np.asarray(end_ns) != 0)
    return np.where(known, (end_ns - begin_ns) / 1e6, np.nan)


def run_keys(records: np.ndarray) -> np.ndarray:
    """One int64 per (rank, module, iteration): the *run* of a module that a record belongs to.

    Ordered by rank, module, iteration. Takes a RECORD array or a data frame with these columns.
    """
    rank = np.asarray(records["rank"], np.int64)
    module = np.asarray(records["module"], np.int64)
    iteration = np.asarray(records["iteration"], np.int64)
    return (rank << 40) | (module << 32) | (iteration + 1)


def split_run_keys(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rank, module and iteration of run keys."""
    return keys >> 40, (keys >> 32) & 0xFF, (keys & 0xFFFF_FFFF) - 1


def find(sorted_keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Position of each wanted key in unique sorted keys, -1 where it is not there."""
    if not len(sorted_keys):
        return np.full(len(wanted), -1, np.int64)
    at = np.searchsorted(sorted_keys, wanted)
    at[at == len(sorted_keys)] = 0
    found: np.ndarray = np.where(sorted_keys[at] == wanted, at, -1)
    return found


def pick(values: np.ndarray, positions: np.ndarray, missing: Any) -> np.ndarray:
    """``values[positions]``, ``missing`` where a position is -1."""
    if not len(values):
        return np.full(len(positions), missing, np.asarray(values).dtype)
    found: np.ndarray = np.where(positions >= 0, values[positions], missing)
    return found


def segments(sorted_keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Unique values of sorted keys; the first and the last row of each."""
    keys, first = np.unique(sorted_keys, return_index=True)
    last = np.append(first[1:], len(sorted_keys)) - 1 if len(keys) else first
    return keys, first, last


class StepIndex:
    """Finds the rows of one step after the other, without looking at all of them each time.

    ``rows``: a RECORD array, or a table, with a step per row.
    """

    def __init__(self, rows: np.ndarray | pd.DataFrame) -> None:
        steps = np.array(rows["step"], np.int64)
        self._order = np.argsort(steps, kind="stable")
        self._steps = steps[self._order]

    def rows(self, step: int) -> np.ndarray:
        """Positions of a step's rows, in their order."""
        first, last = np.searchsorted(self._steps, [step, step + 1])
        return self._order[first:last]

    @property
    def steps(self) -> list[int]:
        """All steps that have rows, in order."""
        found: list[int] = np.unique(self._steps).tolist()
        return found


def check_step(source: Source, step: int | None) -> None:
    """Raises ValueError for a step of which nothing was recorded. -1, outside of steps, is fine."""
    if step is None or step == -1 or len(source.records(steps=[step])):
        return
    known = np.unique(source.records()["step"])
    raise ValueError(no_step(step, known[known >= 0].tolist()))


def no_step(step: int, known: list[int], constructions: int = 0) -> str:
    """The sentence for a step that is not there. ``known``: those that are, in order."""
    expected = [f"{known[0]} to {known[-1]}" if len(known) > 1 else str(known[0])] if known else []
    if constructions:
        numbers = "-1" if constructions == 1 else f"-1 to {-constructions}"
        what = "the construction" if constructions == 1 else "constructions"
        expected.append(f"{numbers} for {what} of DDP modules")
    return (
        f"found no step {step} in the recording, expected {', or '.join(expected)}"
        if expected
        else f"found no step {step} in the recording: it has none yet"
    )


def listed(step: int | None) -> Iterable[int] | None:
    """A step as :meth:`Source.records` wants it."""
    return None if step is None else [step]
