"""The one sentence that titles a step: its largest cause of lost time, in plain words."""

from __future__ import annotations

import numpy as np

from ddpviz.analysis.buffers import forward_of
from ddpviz.analysis.bursts import bursts
from ddpviz.analysis.calls import of_buckets
from ddpviz.analysis.causes import after_backward, in_forward, in_hooks
from ddpviz.analysis.communication import reduced_unseen, unseen_modules
from ddpviz.analysis.evidence import Evidence, gather
from ddpviz.analysis.exposed import on_stream
from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import SHARED_ID, run_keys
from ddpviz.analysis.trouble import trouble
from ddpviz.analysis.units import format_bytes, format_duration
from ddpviz.events import Cause, Flag, Kind

#: Exposed communication below this share of the step is not worth a title.
_NEGLIGIBLE = 0.01

_ON_CUDA = (
    "exposed communication is not known: on CUDA the host only enqueues collectives, so its clock "
    "does not see when they run"
)
_SEVERAL_MODULES = (
    "the buckets of this step are not told apart: more than 254 DDP modules were made, and the "
    "rest share an id"
)


def finding(source: Source, step: int, known: Evidence | None = None) -> str:
    """The step in one sentence: what went wrong, else the cause that cost a rank the most.

    Compared on all ranks are exposed times, split into waiting for a rank, transfer (of one bucket
    that holds everything, of buckets that waited their turn, of others), broadcasts of buffers and
    of a rebuild's bucket order, and what comm hooks wait for.
    Steps -1, -2, … are the constructions of DDP modules, in the order of time.
    ``known``: the step's part of what :func:`gather` read once, where more than one step is asked
    for.
    """
    here = gather(source, step).of(step) if known is None else known
    wrong = trouble(here, step)
    if wrong:
        return wrong
    if step < 0:
        built = here.construction(step)
        return built.title if built else "no construction of a DDP module was recorded here"
    burst = max(bursts(here.source, step), key=lambda one: one.gradients, default=None)
    return _time_lost(here) if burst is None else f"{_time_lost(here)}; {burst.short()}"


def _time_lost(here: Evidence) -> str:
    table, forward = here.buckets, here.of_kind(Kind.FORWARD)
    if (of_buckets(here.calls)["module"] >= SHARED_ID).any():
        return _SEVERAL_MODULES
    if not len(forward) and not len(table):
        return "no forward of a DDP module in this step"
    if on_stream(here.calls).any():
        return _ON_CUDA if len(table) else _nothing_reduced(forward)
    finalize, synced = _ended(here.of_kind(Kind.FINALIZE)), _ended(here.of_kind(Kind.BUFFER_SYNC))
    forward = forward[np.lexsort((forward["begin_ns"], run_keys(forward)))]
    synced = synced[forward_of(forward, synced) >= 0]
    rebuilt = _ended(here.of_kind(Kind.REBUILD))
    lost = [
        *after_backward(here, finalize),
        *in_forward(here, synced, Cause.BUFFERS),
        *in_forward(here, rebuilt, Cause.REBUILD_ORDER),
        *in_hooks(here),
    ]
    worst = max(lost, key=lambda cause: cause.lost_ns, default=None)
    length_ns = max(_lengths_ns(_ended(here.of_kind(Kind.STEP))), default=0.0)
    if worst is not None and worst.lost_ns > _NEGLIGIBLE * length_ns:
        return worst.sentence()
    unseen = unseen_modules(here.source)
    for record in forward[reduced_unseen(forward, unseen)][:1]:
        why = unseen[int(record["rank"]), int(record["module"])]
        return f"buckets are not available here, because {why}"
    if not len(table):
        reduced = here.calls[here.calls["cause"] == Cause.PYTHON_REDUCER]
        return _by_python(reduced) if len(reduced) else _nothing_reduced(forward)
    launched = table[table["launched_ns"] > 0]
    unended = launched["rank"][~np.isin(run_keys(launched), run_keys(finalize))]
    if len(unended):
        return (
            f"how much communication was exposed is not known: the end of rank {unended[0]}'s "
            "backward was not recorded"
        )
    exposed_ns = max(_lengths_ns(finalize), default=0.0)
    return f"all but {format_duration(exposed_ns)} of communication hidden behind backward"


def _ended(records: np.ndarray) -> np.ndarray:
    found: np.ndarray = records[records["end_ns"] > 0]
    return found


def _lengths_ns(records: np.ndarray) -> list[float]:
    return [float(length) for length in records["end_ns"] - records["begin_ns"]]


def _by_python(reduced: np.ndarray) -> str:
    of_rank = reduced[reduced["rank"] == reduced["rank"].min()]
    count, nbytes = len(of_rank), format_bytes(int(of_rank["bytes"].sum()))
    all_reduces = "1 all-reduce" if count == 1 else f"{count} all-reduces"
    return (
        f"python_reducer reduced {nbytes} in {all_reduces}, and the Reducer nothing; whether "
        "backward waited for them is not recorded"
    )


def _nothing_reduced(forward: np.ndarray) -> str:
    if ((forward["flags"] & Flag.NO_GRAD) != 0).all():
        return "forward without gradients: nothing to reduce"
    if ((forward["flags"] & Flag.NO_SYNC) != 0).any():
        return "no_sync: gradients stay local in this step"
    return "no bucket was reduced in this step"
