"""Rows as columns, as a figure's sources take them: float64 arrays, and lists of text."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pandas as pd

#: One row by name of its columns.
Row = dict[str, Any]
#: Columns of a source: float64 arrays, and lists of text.
Columns = dict[str, Any]


def numbers(values: Any) -> np.ndarray:
    """A column of float64."""
    return np.asarray(values, np.float64)


def columns(names: Sequence[str], rows: Sequence[Row], texts: Collection[str]) -> Columns:
    """Rows as columns: those named in ``texts`` as lists of text, the others as float64."""
    return {
        name: [str(row[name]) for row in rows]
        if name in texts
        else numbers([row[name] for row in rows])
        for name in names
    }


def as_rows(found: np.ndarray | pd.DataFrame) -> list[Row]:
    """Rows of plain Python values, of an array with named columns or a table: None for <NA>."""
    if isinstance(found, pd.DataFrame):
        names = [str(name) for name in found.columns]
        values = [_plain(found[name]) for name in names]
    else:
        names = list(found.dtype.names or ())
        values = [found[name].tolist() for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]


def _plain(column: pd.Series) -> list[Any]:
    return [None if value is pd.NA else value for value in column.tolist()]
