"""Tables with fixed columns and dtypes: inside as numpy rows, at the edge as pandas.

A data frame of the few rows of one step costs a hundred times its numpy rows, so data frames are
made where a user gets them and nowhere else. Epoch time 0 means unknown.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from ddpviz.analysis.source import Source
from ddpviz.events import NO_GROUP, Kind

#: A group's or a module's id is one byte. What comes after the 254th shares the id before "none",
#: and what a recording can number no more has "none": from this id on nothing is told apart.
SHARED_ID = NO_GROUP - 1


def row_type(schema: Mapping[str, str]) -> np.dtype:
    """The dtype of :func:`rows` with the schema's columns; text is an object."""
    kinds = {"str": "O", "object": "O", "Int64": "<i8", "int64": "<i8", "float64": "<f8"}
    kinds["boolean"] = "i1"
    return np.dtype([(name, kinds.get(dtype, dtype)) for name, dtype in schema.items()])


def rows(dtype: np.dtype, columns: Mapping[str, Any]) -> np.ndarray:
    """Columns as one array of a :func:`row_type`; unknown is 0 or -1, as :func:`table` takes it."""
    names = dtype.names or ()
    made = np.empty(len(columns[names[0]]), dtype)
    for name in names:
        made[name] = columns[name]
    return made


def sorted_rows(made: np.ndarray, *names: str) -> np.ndarray:
    """Rows in the order of columns, the first the most significant."""
    in_order: np.ndarray = made[np.lexsort([made[name] for name in reversed(names)])]
    return in_order


def table(schema: Mapping[str, str], columns: Mapping[str, Any] | np.ndarray) -> pd.DataFrame:
    """A data frame with the schema's columns in its order; without rows, with the same dtypes.

    ``columns``: also an array of rows. A ``Int64`` column is given as int64 with 0 where the time
    is unknown (names that end in _ns), else with -1, and becomes <NA> there; so is a ``boolean``
    one, with 0, 1 or -1.
    """
    filled = {name: _column(name, dtype, columns[name]) for name, dtype in schema.items()}
    made: pd.DataFrame = pd.DataFrame(filled)
    return made


def _column(name: str, dtype: str, values: Any) -> np.ndarray | pd.Series:
    column: np.ndarray | pd.Series
    if dtype == "Int64":
        whole = np.asarray(values, np.int64)
        unknown = whole == (0 if name.endswith("_ns") else -1)
        column = pd.Series(pd.arrays.IntegerArray(whole.copy(), unknown))
    elif dtype == "boolean":
        truth = np.asarray(values, np.int8)
        column = pd.Series(pd.arrays.BooleanArray(truth == 1, truth < 0))
    elif dtype == "object":
        column = pd.Series(values, dtype=object)
    elif dtype == "str":
        column = pd.Series(np.asarray(values, object)).astype("str")
    else:
        column = np.asarray(values, dtype)
    return column


def happened(records: np.ndarray) -> np.ndarray:
    """Records but for those that the recorder writes about itself and about failures."""
    found: np.ndarray = records[(records["kind"] < Kind.GAP) | (records["kind"] > Kind.FAILED)]
    return found


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
    at = sorted_keys.searchsorted(wanted)
    at[at == len(sorted_keys)] = 0
    found: np.ndarray = np.where(sorted_keys[at] == wanted, at, -1)
    return found


def pick(values: np.ndarray, positions: np.ndarray, missing: Any) -> np.ndarray:
    """``values[positions]``, ``missing`` where a position is -1."""
    if not len(values):
        return np.full(len(positions), missing, np.asarray(values).dtype)
    found: np.ndarray = np.where(positions >= 0, values[positions], missing)
    return found


def among(values: np.ndarray, *wanted: int) -> np.ndarray:
    """``np.isin`` for numbers from 0 to 255 (kinds, causes): 20 times as fast for a step's few."""
    found: np.ndarray = _lookup(wanted)[values]
    return found


@functools.lru_cache(maxsize=256)
def _lookup(wanted: tuple[int, ...]) -> np.ndarray:
    chosen = np.zeros(256, bool)
    chosen[list(wanted)] = True
    return chosen


def segments(sorted_keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Unique values of sorted keys; the first and the last row of each."""
    keys, first = np.unique(sorted_keys, return_index=True)
    last = np.append(first[1:], len(sorted_keys)) - 1 if len(keys) else first
    return keys, first, last


def stacked(*parts: np.ndarray) -> np.ndarray:
    """``np.concatenate`` for rows of one dtype, which numpy compares field by field, in Python."""
    made = np.empty(sum(map(len, parts)), parts[0].dtype)
    begin = 0
    for part in parts:
        made[begin : begin + len(part)] = part
        begin += len(part)
    return made


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
