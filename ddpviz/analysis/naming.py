"""How a collective is called, everywhere: by its operation, its number in the group, its cause."""

from __future__ import annotations

import numpy as np

from ddpviz.analysis.source import Source
from ddpviz.events import Cause, Module

#: Name of every cause by its number.
CAUSES = np.array(
    [Cause(n).name.lower() if n in set(Cause) else f"cause {n}" for n in range(256)], object
)


def collective_name(source: Source, record: np.void) -> str:
    """ "allreduce 11 (bucket 1)", "broadcast 4 (buffers)"; "allreduce 6" where the cause is not
    known. ``record``: its launch or its end."""
    text = source.label(int(record["rank"]), int(record["label"]))
    operation = text.split(" ")[0] or "collective"
    if record["cause"] == Cause.UNKNOWN:
        return f"{operation} {record['sequence']}"
    cause = str(CAUSES[record["cause"]]).replace("_", " ")
    if record["cause"] == Cause.BUCKET and record["index"] >= 0:
        cause = f"bucket {record['index']}"
    return f"{operation} {record['sequence']} ({cause})"


def label_texts(source: Source, records: np.ndarray) -> tuple[list[str], np.ndarray]:
    """The texts of the labels in use, and per record the position of its own."""
    pairs, inverse = np.unique(
        (records["rank"].astype(np.int64) << 16) | records["label"], return_inverse=True
    )
    return [source.label(pair >> 16, pair & 0xFFFF) for pair in pairs.tolist()], inverse


def bucket_name(source: Source, row: np.void) -> str:
    """ "bucket 2", with its module's name where the rank has several. ``row``: of
    :data:`ddpviz.analysis.buckets.BUCKET`."""
    modules = {m.id: m.name for m in source.notes(Module, rank=int(row["rank"]))}
    of = f" of {modules.get(int(row['module']), 'a module')}" if len(modules) > 1 else ""
    return f"bucket {row['bucket']}{of}"
