"""A recording as one Parquet file, for any tool that reads tables: a row per record, in words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ddpviz.analysis.naming import label_texts
from ddpviz.events import NO_GROUP, NO_MODULE, Cause, Clock, Flag, Group, Kind, Module

if TYPE_CHECKING:
    from ddpviz.recording import Recording

_NUMBERS = ("begin_ns", "end_ns", "bytes", "step", "iteration", "index", "sequence")


def write_parquet(recording: Recording, path: str | Path) -> Path:
    """Writes the records in memory, by rank and begin, and returns the path.

    Columns: ``rank``; the numbers of :data:`ddpviz.events.RECORD` under their names there, -1 (of
    ``end_ns`` 0) for what is not known; ``kind``, ``cause``, ``clock`` by name, ``flags`` as a list
    of names; ``label``, ``module``, ``group`` as text, "" for none. Raises OSError.
    """
    records = recording.records()
    records = records[np.lexsort((records["begin_ns"], records["rank"]))]
    columns: dict[str, pa.Array] = {"rank": pa.array(records["rank"])}
    columns |= {name: pa.array(np.ascontiguousarray(records[name])) for name in _NUMBERS}
    for name, enum in (("kind", Kind), ("cause", Cause), ("clock", Clock)):
        columns[name] = _worded(records[name], {int(one): one.name.lower() for one in enum})
    columns["flags"] = _flags(records["flags"])
    texts, at = label_texts(recording, records)
    columns["label"] = pa.DictionaryArray.from_arrays(
        pa.array(at, pa.int32()), pa.array(texts, pa.string())
    )
    columns["module"] = _named(recording, records, "module", Module, NO_MODULE)
    columns["group"] = _named(recording, records, "group", Group, NO_GROUP)
    path = Path(path)
    pq.write_table(pa.table(columns), path, compression="zstd")
    return path


def _worded(values: np.ndarray, words: dict[int, str]) -> pa.Array:
    unique, at = np.unique(values, return_inverse=True)
    texts = pa.array([words.get(int(one), str(one)) for one in unique], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(at, pa.int32()), texts)


def _flags(values: np.ndarray) -> pa.Array:
    names = {
        int(one): [flag.name.lower() for flag in Flag if flag & int(one) and flag.name]
        for one in np.unique(values)
    }
    return pa.array([names[one] for one in values.tolist()], pa.list_(pa.string()))


def _named(
    recording: Recording,
    records: np.ndarray,
    field: str,
    kind: type[Module] | type[Group],
    none: int,
) -> pa.Array:
    names = {
        (rank, one.id): one.name for rank in recording.ranks for one in recording.notes(kind, rank)
    }
    keys = (records["rank"].astype(np.int64) << 8) | records[field]
    unique, at = np.unique(keys, return_inverse=True)
    texts = [
        "" if key & 0xFF == none else names.get((key >> 8, key & 0xFF), str(key & 0xFF))
        for key in unique.tolist()
    ]
    return pa.DictionaryArray.from_arrays(pa.array(at, pa.int32()), pa.array(texts, pa.string()))
