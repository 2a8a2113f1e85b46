"""The rows of compute lanes: what a rank did itself, and the communication it had to wait for."""

from __future__ import annotations

import numpy as np

from ddpviz.analysis.constructions import KINDS as CONSTRUCTION_KINDS
from ddpviz.events import Cause, Flag, Kind
from ddpviz.views.columns import Row
from ddpviz.views.lanes import Lane, Lanes
from ddpviz.views.source import StepSource, is_construction
from ddpviz.views.stretches import interval
from ddpviz.views.text import count, duration, sent_size

#: Kinds that fill a compute lane in a step, and in construction: there its parts.
COMPUTE_KINDS = (
    *(Kind.FORWARD, Kind.BUFFER_SYNC, Kind.BACKWARD, Kind.FINALIZE, Kind.OPTIMIZER),
    Kind.FINGERPRINT,
)
CONSTRUCTION_PARTS = tuple(kind for kind in CONSTRUCTION_KINDS if kind != Kind.CONSTRUCTION)

_RETURNS = "finalize is over: the autograd engine returns to the training thread"
_TAKEN = "taken by ddpviz in this sampled step: this time is not the training's own"
_HOST_TIME = "host time: when this was enqueued, not when it ran on the GPU"


def compute_rows(source: StepSource, lanes: Lanes, end_ms: float) -> list[Row]:
    """Forward, buffer broadcast, backward and optimizer of every rank, without overlaps."""
    rows: list[Row] = []
    kinds = CONSTRUCTION_PARTS if is_construction(source.step) else COMPUTE_KINDS
    drawn = source.records[np.isin(source.records["kind"], kinds)]
    for rank, lane in lanes.compute.items():
        of_rank = drawn[drawn["rank"] == rank]
        synced = intervals(of_rank[of_rank["kind"] == Kind.BUFFER_SYNC], source.zero_ns, end_ms)
        waits = source.exposed[source.exposed["rank"] == rank]
        exposed = intervals(waits, source.zero_ns, end_ms)
        finalized = intervals(waits[waits["kind"] == Kind.FINALIZE], source.zero_ns, end_ms)
        taken = intervals(of_rank[of_rank["kind"] == Kind.FINGERPRINT], source.zero_ns, end_ms)
        wholes = intervals(of_rank, source.zero_ns, end_ms)
        of_lane: list[Row] = []
        for record, whole in zip(of_rank, wholes, strict=True):
            kind = Kind(int(record["kind"]))
            if kind == Kind.FORWARD:
                flags = Flag(int(record["flags"]))
                detail = "\n".join(
                    text
                    for flag, text in (
                        (Flag.NO_SYNC, "no_sync: this iteration's gradients stay local"),
                        (Flag.NO_GRAD, "without gradients"),
                    )
                    if flag in flags
                )
                pieces = _without(whole, synced + exposed + taken)
                of_lane += [
                    _span("forward", rank, lane, piece, "forward", detail) for piece in pieces
                ]
            elif kind == Kind.BACKWARD:
                pieces = _without(whole, exposed + taken)
                returned = [after for _, after in finalized]
                of_lane += [
                    _span("backward", rank, lane, piece, "backward", _RETURNS)
                    if piece[0] in returned
                    else _span("backward", rank, lane, piece, "backward", "")
                    for piece in pieces
                ]
            elif kind == Kind.BUFFER_SYNC:
                many = int(record["index"])
                buffers = count(many, "buffer") if many >= 0 else "buffers"
                detail = f"{buffers}, {sent_size(int(record['bytes']))}"
                hooked = int(record["flags"]) & Flag.FROM_HOOK
                head = "buffer hook, no broadcast," if hooked else "buffer broadcast"
                of_lane.append(_span("buffers", rank, lane, whole, head, detail))
            elif kind == Kind.OPTIMIZER:
                of_lane += [
                    _span("optimizer", rank, lane, piece, "optimizer step", "")
                    for piece in _without(whole, taken)
                ]
            elif kind == Kind.FINGERPRINT:
                tensors = count(int(record["index"]), "tensor")
                head = f"fingerprints of {tensors}"
                of_lane.append(_span("fingerprints", rank, lane, whole, head, _TAKEN))
            elif kind in CONSTRUCTION_PARTS:
                head = kind.name.lower().replace("_", ": ", 1)
                derived = bool(int(record["flags"]) & Flag.DERIVED)
                of_lane.append(_span("construction", rank, lane, whole, head, "", derived))
        if rank in source.enqueuing_ranks:
            for row in of_lane:
                row["detail"] = "\n".join(part for part in (row["detail"], _HOST_TIME) if part)
        rows += of_lane
    return [row for row in rows if row["right"] > row["left"]]


def host_rows(source: StepSource, lanes: Lanes, end_ms: float) -> list[Row]:
    """When the host enqueued what the compute lane shows: ahead of the device, or behind it."""
    rows: list[Row] = []
    drawn = source.records[source.records["kind"] == Kind.HOST]
    drawn = drawn[np.isin(drawn["index"], [int(kind) for kind in _ENQUEUED])]
    for rank, lane in lanes.host.items():
        mine = drawn[drawn["rank"] == rank]
        for record, whole in zip(mine, intervals(mine, source.zero_ns, end_ms), strict=True):
            head = f"{_ENQUEUED[Kind(int(record['index']))]}, enqueued by the host"
            rows.append(_span("host", rank, lane, whole, head, ""))
    return rows


#: What the host's lane shows, without overlaps.
_ENQUEUED = {
    Kind.FORWARD: "forward",
    Kind.BACKWARD: "backward",
    Kind.OPTIMIZER: "optimizer step",
}


def _span(
    kind: str,
    rank: int,
    lane: Lane,
    whole: tuple[float, float],
    head: str,
    detail: str,
    derived: bool = False,
) -> Row:
    return {
        "kind": kind,
        "rank": rank,
        "left": whole[0],
        "right": whole[1],
        "top": lane.top,
        "bottom": lane.bottom,
        "derived": derived,
        "head": f"{head} of rank {rank}",
        "time": interval(*whole),
        "detail": detail,
    }


def intervals(records: np.ndarray, zero_ns: int, end_ms: float) -> list[tuple[float, float]]:
    """Begin and end of records in ms; what has no end is drawn up to the end of the step."""
    begins = (records["begin_ns"] - zero_ns) / 1e6
    ends = np.where(records["end_ns"] == 0, end_ms, (records["end_ns"] - zero_ns) / 1e6)
    return list(zip(begins.tolist(), ends.tolist(), strict=True))


def _without(
    whole: tuple[float, float], holes: list[tuple[float, float]]
) -> list[tuple[float, float]]:
    """What remains of an interval."""
    pieces = []
    begin, end = whole
    for left, right in sorted(holes):
        if right <= begin or left >= end:
            continue
        if left > begin:
            pieces.append((begin, left))
        begin = max(begin, right)
    if begin < end:
        pieces.append((begin, end))
    return pieces


def _waiting_for(record: np.void) -> str:
    """What the rank waits for in a span of exposed communication."""
    if record["kind"] == Kind.FINALIZE:
        return "its gradients are ready; it waits for buckets and copies them back"
    if record["kind"] == Kind.BUFFER_SYNC:
        return "before its forward it waits for the buffers"
    return {
        Cause.REBUILD_ORDER: "buckets are rebuilt: it waits for rank 0's order of them",
        Cause.SYNC_BATCH_NORM: "SyncBatchNorm waits for its statistics",
    }.get(record["cause"], "its comm hook waits for its own collectives")


def exposed_rows(source: StepSource, lanes: Lanes, end_ms: float) -> list[Row]:
    """Where a rank waits for communication: it computes nothing then.

    As long as the table of steps says, together: where spans overlap, the later has what is left.
    """
    rows = []
    for rank, lane in lanes.compute.items():
        beyond = 2 if rank in lanes.open_ranks else 0
        mine = source.exposed[source.exposed["rank"] == rank]
        mine = mine[np.lexsort((mine["end_ns"], mine["begin_ns"]))]
        reached = -np.inf
        of_rank: list[Row] = []
        for record, (begin, right) in zip(
            mine, intervals(mine, source.zero_ns, end_ms), strict=True
        ):
            left, reached = max(begin, reached), max(reached, right)
            if right > left:
                of_rank.append(
                    {
                        "rank": rank,
                        "left": left,
                        "right": right,
                        "top": lane.top - beyond,
                        "bottom": lane.bottom + beyond,
                        "head": f"exposed communication of rank {rank}",
                        "time": interval(left, right),
                        "detail": _waiting_for(record),
                    }
                )
        total_ms = sum(row["right"] - row["left"] for row in of_rank)
        for row in of_rank if len(of_rank) > 1 else []:
            row["detail"] += f"\n{duration(total_ms)} of exposed communication in this step"
        rows += of_rank
    return rows
