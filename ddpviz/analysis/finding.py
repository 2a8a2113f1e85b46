"""The one sentence that titles a step: its largest cause of lost time, in plain words."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd

from ddpviz.analysis.buckets import buckets
from ddpviz.analysis.buffers import forward_of
from ddpviz.analysis.calls import arrivals, calls
from ddpviz.analysis.intervals import union_ns
from ddpviz.analysis.plans import plan_index
from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import run_keys
from ddpviz.analysis.trouble import bucket_name, trouble
from ddpviz.analysis.units import format_bytes, format_duration
from ddpviz.events import Cause, Flag, Kind

#: Exposed communication below this share of the step is not worth a title.
_NEGLIGIBLE = 0.01


@dataclasses.dataclass(frozen=True)
class _Cause:
    """What a rank lost, in ns, and the sentence for it."""

    lost_ns: float
    sentence: str


def finding(source: Source, step: int) -> str:
    """The step in one sentence: what went wrong, else the cause that cost a rank the most.

    Compared on all ranks are exposed times, split into waiting for a rank, transfer (of one bucket
    that holds everything, of buckets that waited their turn, of others) and buffer broadcasts.
    """
    table = buckets(source, step)
    wrong = trouble(source, step, table)
    if wrong:
        return wrong
    records = source.records(
        kinds=(Kind.STEP, Kind.FINALIZE, Kind.FORWARD, Kind.BUFFER_SYNC), steps=[step]
    )
    of_kind = {int(kind): records[records["kind"] == kind] for kind in np.unique(records["kind"])}
    nothing = records[:0]
    finalize = of_kind.get(Kind.FINALIZE, nothing)
    forward = of_kind.get(Kind.FORWARD, nothing)
    synced = of_kind.get(Kind.BUFFER_SYNC, nothing)
    synced = synced[forward_of(_sorted(forward), synced) >= 0]
    if not len(forward) and not len(table):
        return "no forward of a DDP module in this step"
    causes = _after_backward(source, table, finalize) + _before_forward(source, step, synced)
    worst = max(causes, key=lambda cause: cause.lost_ns, default=None)
    if worst is not None and worst.lost_ns > _NEGLIGIBLE * _length_ns(of_kind.get(Kind.STEP)):
        return worst.sentence
    if not len(table):
        return _nothing_reduced(forward)
    exposed_ns = max(_lengths_ns(finalize), default=0.0)
    return f"all but {format_duration(exposed_ns)} of communication hidden behind backward"


def _sorted(forward: np.ndarray) -> np.ndarray:
    return forward[np.lexsort((forward["begin_ns"], run_keys(forward)))]


def _lengths_ns(records: np.ndarray) -> list[float]:
    return [float(length) for length in records["end_ns"] - records["begin_ns"]]


def _length_ns(step: np.ndarray | None) -> float:
    """The step's length on its slowest rank; 0 where it has no end, so that every loss counts."""
    return 0.0 if step is None else max(_lengths_ns(step), default=0.0)


def _nothing_reduced(forward: np.ndarray) -> str:
    if ((forward["flags"] & Flag.NO_GRAD) != 0).all():
        return "forward without gradients: nothing to reduce"
    if ((forward["flags"] & Flag.NO_SYNC) != 0).any():
        return "no_sync: gradients stay local in this step"
    return "no bucket was reduced in this step"


# --- after backward ----------------------------------------------------------------------------


def _after_backward(source: Source, table: pd.DataFrame, finalize: np.ndarray) -> list[_Cause]:
    """Causes of exposed communication, for each backward of each rank."""
    causes = []
    for record in finalize:
        mine = table[
            (table["rank"] == record["rank"])
            & (table["module"] == record["module"])
            & (table["iteration"] == record["iteration"])
            & table["launched_ns"].notna()
        ]
        if not mine.empty:
            causes += _of_finalize(source, mine, record)
    return causes


def _of_finalize(source: Source, mine: pd.DataFrame, record: np.void) -> list[_Cause]:
    begin_ns, end_ns = int(record["begin_ns"]), int(record["end_ns"])
    launched, last, done = (
        mine[name].to_numpy(np.int64, na_value=0)
        for name in ("launched_ns", "last_launched_ns", "done_ns")
    )
    exposed_ns = float(end_ns - begin_ns)
    inside_ns = np.clip(last, begin_ns, end_ns) - np.clip(launched, begin_ns, end_ns)
    waits = np.where(last > 0, inside_ns, 0)
    waited_ns = _union_ns(np.maximum(launched, begin_ns), np.minimum(last, end_ns), last > 0)
    rest_ns = max(exposed_ns - waited_ns, 0.0)
    causes = []
    if waits.any():
        row = mine.iloc[int(np.argmax(waits))]
        causes.append(_Cause(waited_ns, _wait_sentence(source, row)))
    rank, rest = record["rank"], format_duration(rest_ns)
    known = "" if (last > 0).any() else "; whether it waited for a rank is not known"
    if record["flags"] & Flag.DELAYED:
        text = f"static_graph reduces after the first backward, so nothing overlaps: {rest} exposed"
    elif len(mine) == 1 and _plan_size(source, record) <= 1:
        text = f"one bucket holds everything, so nothing overlaps: {rest} exposed on rank {rank}"
    else:
        text = f"{rest} of communication exposed after backward on rank {rank}"
        turn = _turn(source, mine, np.maximum(last, launched), done, begin_ns, end_ns)
        if turn is not None:
            rest_ns = max(rest_ns - turn.lost_ns, 0.0)
            causes.append(turn)
    causes.append(_Cause(rest_ns, text + known))
    return causes


def _turn(
    source: Source,
    mine: pd.DataFrame,
    sent_ns: np.ndarray,
    done_ns: np.ndarray,
    begin_ns: int,
    end_ns: int,
) -> _Cause | None:
    """Exposed transfer that would have come earlier, had the bucket not waited its turn."""
    transfer_ns = np.minimum(np.where(done_ns > 0, done_ns, end_ns), end_ns) - np.maximum(
        sent_ns, begin_ns
    )
    waited_ns = mine["head_of_line_ms"].fillna(0.0).to_numpy() * 1e6
    saved_ns = np.maximum(np.minimum(transfer_ns, waited_ns), 0)
    if not saved_ns.any():
        return None
    row = mine.iloc[int(np.argmax(saved_ns))]
    return _Cause(
        float(saved_ns.max()),
        f"{bucket_name(source, row)} of rank {row['rank']} was full, but waited "
        f"{format_duration(row['head_of_line_ms'] * 1e6)} for its turn; transferring it took "
        f"{format_duration(row['transfer_ms'] * 1e6)}",
    )


def _wait_sentence(source: Source, row: pd.Series) -> str:
    return (
        f"rank {row['rank']} waited {format_duration(row['wait_for_rank_ms'] * 1e6)} for rank "
        f"{row['last_rank']} in {bucket_name(source, row)}; transferring it took "
        f"{format_duration(row['transfer_ms'] * 1e6)}"
    )


def _plan_size(source: Source, record: np.void) -> int:
    """Buckets in the plan of a run; 0 where it is unknown."""
    index = plan_index(source)
    return int(index.buckets(index.at(run_keys(np.array([record]))))[0])


def _union_ns(begin_ns: np.ndarray, end_ns: np.ndarray, which: np.ndarray) -> float:
    zeros = np.zeros(int(which.sum()), np.int64)
    return float(union_ns(zeros, begin_ns[which], end_ns[which], 1)[0])


# --- before forward ----------------------------------------------------------------------------


def _before_forward(source: Source, step: int, synced: np.ndarray) -> list[_Cause]:
    """Buffer syncs: the module does not run before they are over."""
    if not len(synced):
        return []
    found = calls(source, step)
    broadcast = found[found["cause"] == Cause.BUFFERS]
    who = arrivals(source, broadcast, found, False)
    causes = []
    for record in synced:
        mine = (
            (run_keys(broadcast) == run_keys(np.array([record])))
            & (broadcast["begin_ns"] >= record["begin_ns"])
            & (broadcast["begin_ns"] <= record["end_ns"])
        )
        launched_ns = broadcast["begin_ns"][mine]
        # A sender may be done before the others have launched: it did not wait for them.
        last_ns = np.where(who.clipped[mine], 0, who.last_launched_ns[mine])
        lost_ns = float(record["end_ns"] - record["begin_ns"])
        waited_ns = _union_ns(launched_ns, last_ns, last_ns > 0)
        rank, nbytes = record["rank"], format_bytes(int(record["bytes"]))
        rest_ns = lost_ns - waited_ns
        if waited_ns:
            other = who.last_rank[mine][int(np.argmax(last_ns - launched_ns))]
            causes.append(
                _Cause(
                    waited_ns,
                    f"rank {rank} waited {format_duration(waited_ns)} for rank {other} in the "
                    f"buffer broadcast; moving {nbytes} took {format_duration(rest_ns)}",
                )
            )
        causes.append(
            _Cause(
                rest_ns,
                f"broadcasting {nbytes} of buffers took {format_duration(rest_ns)} before "
                f"forward on rank {rank}",
            )
        )
    return causes
