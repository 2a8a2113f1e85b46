"""What cost a rank time in a step: each cause with the time lost, and the sentence for it.

Times lost are exposed ones: within finalize, in a forward's broadcasts, in a comm hook. A sentence
that names a longer time says how much of it was exposed. A completion can be recorded late, so of
one collective the first is what tells how long its transfer took.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from ddpviz.analysis.calls import UNSPLIT, Unsplit
from ddpviz.analysis.evidence import Evidence
from ddpviz.analysis.exposed import hook_waits
from ddpviz.analysis.intervals import union_ns
from ddpviz.analysis.naming import bucket_name
from ddpviz.analysis.tables import run_keys
from ddpviz.analysis.units import format_bytes, format_duration
from ddpviz.events import Cause, Flag, Kind

#: Where the exposed part is less than this share of the time named, it is named too.
_ALL = 0.9


@dataclasses.dataclass(frozen=True)
class LostTime:
    """What a rank lost, in ns, and what tells it: only the worst is told."""

    lost_ns: float
    sentence: Callable[[], str]


@dataclasses.dataclass(frozen=True)
class _Launched:
    """Buckets that were launched: rows of the table, and what is told of them in ns, 0 where
    unknown."""

    rows: np.ndarray
    turn_ns: np.ndarray
    first_done_ns: np.ndarray
    first_derived: np.ndarray

    @property
    def launched_ns(self) -> np.ndarray:
        return self.rows["launched_ns"]

    @property
    def last_ns(self) -> np.ndarray:
        return self.rows["last_launched_ns"]

    @property
    def done_ns(self) -> np.ndarray:
        return self.rows["done_ns"]

    @property
    def unsplit(self) -> np.ndarray:
        return self.rows["unsplit"]

    def of(self, which: np.ndarray) -> _Launched:
        return _Launched(*(getattr(self, field.name)[which] for field in dataclasses.fields(self)))


#: Waiting that is a smaller part of what is exposed is not told beside the rest.
_TOLD_SHARE = 0.01


def after_backward(here: Evidence, finalize: np.ndarray) -> list[LostTime]:
    """Causes of exposed communication, for each backward of each rank. ``here``: of one step."""
    found = []
    rows = here.buckets[here.buckets["launched_ns"] > 0]
    first = _first_done(rows["sequence"], rows["last_launched_ns"], rows["done_ns"])
    derived = np.array(["transfer_ms" in of for of in rows["derived"]], bool)
    buckets = _Launched(
        rows,
        np.nan_to_num(rows["head_of_line_ms"] * 1e6),
        rows["done_ns"][first],
        derived | derived[first],
    )
    runs = run_keys(rows)
    for record, run in zip(finalize, run_keys(finalize), strict=True):
        if (runs == run).any():
            found += _of_finalize(here, buckets.of(runs == run), record)
    return found


def _first_done(sequence: np.ndarray, last_ns: np.ndarray, done_ns: np.ndarray) -> np.ndarray:
    """Per row the row of the same collective that completed first, on whatever rank: itself where
    ranks are not compared. The same collective has the same number and last launch."""
    first = np.arange(len(done_ns))
    order = np.argsort(done_ns, kind="stable")
    order = order[(last_ns[order] > 0) & (done_ns[order] > 0)]
    earliest: dict[tuple[int, int], int] = {}
    for at in order.tolist():
        first[at] = earliest.setdefault((int(sequence[at]), int(last_ns[at])), at)
    return first


def _of_finalize(here: Evidence, mine: _Launched, record: np.void) -> list[LostTime]:
    begin_ns, end_ns = int(record["begin_ns"]), int(record["end_ns"])
    launched, last, done = mine.launched_ns, mine.last_ns, mine.done_ns
    exposed_ns = float(end_ns - begin_ns)
    inside_ns = np.clip(last, begin_ns, end_ns) - np.clip(launched, begin_ns, end_ns)
    # Launches are compared where that tells waiting from transfer.
    split = (last > 0) & (mine.unsplit == "")
    waits = np.where(split, inside_ns, 0)
    waited_ns = _union_ns(np.maximum(launched, begin_ns), np.minimum(last, end_ns), split)
    rest_ns = max(exposed_ns - waited_ns, 0.0)
    found = []
    if waits.any():
        at = int(np.argmax(waits))
        sentence = functools.partial(_wait_sentence, here, mine, at, float(waits[at]))
        found.append(LostTime(waited_ns, sentence))
    rank, rest = record["rank"], format_duration(rest_ns)
    if record["flags"] & Flag.DELAYED:
        text = f"static_graph reduces after the first backward, so nothing overlaps: {rest} exposed"
    elif len(mine.rows) == 1 and _plan_size(here, record) <= 1:
        text = f"one bucket holds everything, so nothing overlaps: {rest} exposed on rank {rank}"
    else:
        text = f"{rest} of communication exposed after backward on rank {rank}"
        turn = _turn(here, mine, begin_ns, end_ns)
        if turn is not None:
            rest_ns = max(rest_ns - turn.lost_ns, 0.0)
            found.append(turn)
    if waited_ns >= _TOLD_SHARE * exposed_ns:
        text += f", beside {format_duration(waited_ns)} of waiting for another rank"
    reasons = mine.unsplit[((done == 0) | (done > begin_ns)) & (mine.unsplit != "")]
    text += _waiting_included(*reasons[:1])
    found.append(LostTime(rest_ns, functools.partial(str, text)))
    return found


def _waiting_included(reason: str = "") -> str:
    return f", any waiting included: {reason}" if reason else ""


def _turn(here: Evidence, mine: _Launched, begin_ns: int, end_ns: int) -> LostTime | None:
    """Exposed transfer that would have come earlier, had the bucket not waited its turn."""
    sent_ns = np.maximum(mine.last_ns, mine.launched_ns)
    until_ns = np.minimum(np.where(mine.done_ns > 0, mine.first_done_ns, end_ns), end_ns)
    inside_ns = np.maximum(until_ns - np.maximum(sent_ns, begin_ns), 0)
    saved_ns = np.minimum(inside_ns, mine.turn_ns)
    if not saved_ns.any():
        return None
    at = int(np.argmax(saved_ns))
    sentence = functools.partial(_turn_sentence, here, mine, at, float(inside_ns[at]))
    return LostTime(float(saved_ns[at]), sentence)


def _turn_sentence(here: Evidence, mine: _Launched, at: int, exposed_ns: float) -> str:
    row = mine.rows[at]
    return (
        f"{bucket_name(here.source, row)} of rank {row['rank']} was full, but waited "
        f"{format_duration(mine.turn_ns[at])} for its turn{_if_derived(row, 'head_of_line_ms')}; "
        f"{_transfer(mine, at, exposed_ns)}"
    )


def _wait_sentence(here: Evidence, mine: _Launched, at: int, exposed_ns: float) -> str:
    row = mine.rows[at]
    waited_ns = row["wait_for_rank_ms"] * 1e6
    return (
        f"rank {row['rank']} waited {format_duration(waited_ns)} for rank {row['last_rank']} in "
        f"{bucket_name(here.source, row)}{_if_derived(row, 'wait_for_rank_ms')}"
        f"{_of_it(exposed_ns, waited_ns)}; {_transfer(mine, at)}"
    )


def _if_derived(row: np.void, column: str) -> str:
    return " (derived)" if column in row["derived"].split(",") else ""


def _of_it(exposed_ns: float, whole_ns: float) -> str:
    if exposed_ns >= _ALL * whole_ns:
        return ""
    return f", {format_duration(exposed_ns)} of it exposed"


def _transfer(mine: _Launched, at: int, exposed_ns: float | None = None) -> str:
    """How long it was in flight after the last rank launched it, and how much was exposed."""
    if not mine.done_ns[at]:
        return "the end of its transfer is not known"
    if mine.unsplit[at]:
        transfer_ns = float(mine.done_ns[at] - mine.launched_ns[at])
        text = f"it was in flight for {format_duration(transfer_ns)}"
    else:
        transfer_ns = float(mine.first_done_ns[at] - mine.last_ns[at])
        text = f"transferring it took {format_duration(transfer_ns)}"
        text += " (derived)" if mine.first_derived[at] else ""
    if exposed_ns is None:
        return text
    return text + _of_it(min(exposed_ns, transfer_ns), transfer_ns)


def _plan_size(here: Evidence, record: np.void) -> int:
    """Buckets in the plan of a run; 0 where it is unknown."""
    return int(here.plans.buckets(here.plans.at(run_keys(np.array([record]))))[0])


def _union_ns(begin_ns: np.ndarray, end_ns: np.ndarray, which: np.ndarray) -> float:
    zeros = np.zeros(int(which.sum()), np.int64)
    return float(union_ns(zeros, begin_ns[which], end_ns[which], 1)[0])


#: Broadcasts that a forward waits for: what a rank waited in, and what was sent.
_BROADCASTS = {
    Cause.BUFFERS: ("the buffer broadcast", "{bytes} of buffers"),
    Cause.REBUILD_ORDER: (
        "the broadcast of the rebuilt buckets' order",
        "the rebuilt buckets' order",
    ),
}


def in_forward(here: Evidence, spans: np.ndarray, cause: Cause) -> list[LostTime]:
    """Broadcasts: the module does not run before they are over.

    ``here``: of one step; ``spans``: its buffer syncs or rebuilds, which have broadcasts of
    ``cause``. Of a rebuild only the broadcasts count, not the planning.
    """
    broadcast, who = here.calls, here.arrivals
    waiting_in, what = _BROADCASTS[cause]
    found, runs = [], run_keys(broadcast)
    for record, run in zip(spans, run_keys(spans), strict=True):
        begin_ns, end_ns = int(record["begin_ns"]), int(record["end_ns"])
        mine = (
            (broadcast["cause"] == cause)
            & (runs == run)
            & (broadcast["begin_ns"] >= begin_ns)
            & (broadcast["begin_ns"] <= end_ns)
        )
        launched_ns = broadcast["begin_ns"][mine]
        # A sender may be done before the others have launched: it did not wait for them.
        last_ns = np.where(who.clipped[mine], 0, np.minimum(who.last_launched_ns[mine], end_ns))
        waited_ns = _union_ns(launched_ns, last_ns, last_ns > 0)
        unsplit = who.unsplit[mine]
        reason = str(UNSPLIT[unsplit.max(initial=Unsplit.SPLIT)])
        rank, nbytes = record["rank"], format_bytes(int(record["bytes"]))
        sent = what.format(bytes=nbytes)
        whole_ns = float(end_ns - begin_ns)
        if cause == Cause.REBUILD_ORDER:
            ends_ns = np.minimum(broadcast["end_ns"][mine], end_ns)
            whole_ns = _union_ns(launched_ns, ends_ns, ends_ns > 0)
        rest_ns = max(whole_ns - waited_ns, 0.0)
        hooked = bool(int(record["flags"]) & Flag.FROM_HOOK)
        if waited_ns:
            other = who.last_rank[mine][int(np.argmax(last_ns - launched_ns))]
            where = "its buffer hook" if hooked else waiting_in
            waiting = (
                f"rank {rank} waited {format_duration(waited_ns)} for rank {other} in "
                f"{where}; {_moving(cause, nbytes)} took {format_duration(rest_ns)}"
            )
            found.append(LostTime(waited_ns, functools.partial(str, waiting)))
        moving = (
            f"broadcasting {sent} took {format_duration(rest_ns)} before forward on "
            f"rank {rank}{_waiting_included(reason)}"
        )
        if hooked:
            moving = (
                f"the buffer hook, in place of a broadcast of {nbytes}, took "
                f"{format_duration(whole_ns)} on rank {rank}"
            )
        found.append(LostTime(rest_ns, functools.partial(str, moving)))
    return found


def _moving(cause: Cause, nbytes: str) -> str:
    return f"moving {nbytes}" if cause == Cause.BUFFERS else "sending it"


def in_hooks(here: Evidence) -> list[LostTime]:
    """Comm hooks that wait for their own collectives. ``here``: of one step."""
    waits = hook_waits(here.of_kind(Kind.COMM_HOOK), here.calls)
    found = []
    for rank in np.unique(waits["rank"]).tolist():
        mine = waits[waits["rank"] == rank]
        waited_ns = _union_ns(mine["begin_ns"], mine["end_ns"], np.ones(len(mine), bool))
        text = (
            f"rank {rank}'s comm hook waited {format_duration(waited_ns)} for its own collectives "
            "inside the backward, which goes on only when it returns"
        )
        found.append(LostTime(waited_ns, functools.partial(str, text)))
    return found
