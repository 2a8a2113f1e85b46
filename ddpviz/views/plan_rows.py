"""The rows of the bucket plan: lanes, bars of buckets, blocks of parameters, labels. No Bokeh."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ddpviz.analysis.source import Source
from ddpviz.events import Bucket, Module, Plan, Tensor
from ddpviz.views.live import untypeset
from ddpviz.views.text import count, names, size

#: Launch order as a ramp, from the first bucket to the last.
FIRST, LAST = "#0072B2", "#C6DFF0"
#: Blocks of parameters in the figure; neighbours of one bucket are merged beyond it.
_MOST_BLOCKS = 3_000
#: Edges of more blocks in one lane would be all that is seen.
_MOST_EDGES = 100
#: Buckets of a plan with a lane of their own.
_MOST_LANES = 24
_PITCH_PX = (20.0, 12.0)
_WANTED_HEIGHT_PX = 300.0
_GAP_PX = 8.0
_FILL = 0.72
#: A plan's reason as its margin has it.
REASONS = {
    "construction": "as constructed",
    "rebuild": "rebuilt",
    "attached": "as found",
}


@dataclasses.dataclass(frozen=True)
class PlanRows:
    """What the figure shows: lengths in bytes, lanes in px from the top. ``longest_bytes``: of the
    longest bar."""

    title: str
    lanes: list[tuple[float, str]]
    bars: list[dict[str, Any]]
    marks: list[dict[str, Any]]
    blocks: list[dict[str, Any]]
    labels: list[dict[str, Any]]
    height_px: float
    longest_bytes: float


def plan_rows(source: Source, *, brief: bool = False) -> PlanRows | None:
    """Rows of the module that is trained, from its first rank's notes; None without a plan.

    ``brief``: with short texts, for a narrow figure; hovers tell the rest.
    """
    found = plans_of(source)
    if found is None:
        return None
    pitch = _pitch(found)
    lanes: list[tuple[float, str]] = []
    bars: list[dict[str, Any]] = []
    marks: list[dict[str, Any]] = []
    blocks: list[dict[str, Any]] = []
    labels: list[dict[str, Any]] = []
    order = _launch_order(found)
    y = _GAP_PX / 2
    total_bytes = sum(tensor.bytes for tensor in found.tensors)
    if found.tensors:  # a trace doesn't say what was registered
        lane = _Lane("as registered", y + pitch / 2, pitch * _FILL / 2)
        lanes.append((lane.middle, lane.label))
        registered = list(range(len(found.tensors)))
        blocks += _blocks(found, registered, lane, order, None)
        labels.append(_label(total_bytes, lane, f"{size(total_bytes)}, {_parameters(registered)}"))
        y += pitch
    for plan in found.plans:
        y += _GAP_PX
        shown = plan.buckets[:_MOST_LANES]
        for number, bucket in enumerate(shown):
            name = f"bucket {number}"
            if number == 0:
                why = "" if brief else f" {REASONS.get(plan.reason, plan.reason)}"
                name = f"plan {plan.version}{why}   {name}"
            lane = _Lane(name, y + pitch / 2, pitch * _FILL / 2)
            lanes.append((lane.middle, lane.label))
            bars += _bars(number, bucket, lane, plan.reason)
            marks += _limit(number, bucket, lane)
            blocks += _blocks(found, list(bucket.parameters), lane, order, plan)
            labels.append(_label(bucket.bytes, lane, _short(bucket, brief)))
            y += pitch
        if len(plan.buckets) > len(shown):
            more = count(len(plan.buckets) - len(shown), "more bucket")
            lane = _Lane(f"and {more}", y + pitch / 2, pitch * _FILL / 2)
            lanes.append((lane.middle, lane.label))
            y += pitch
    longest = max([total_bytes, *(b.bytes for plan in found.plans for b in plan.buckets)])
    return PlanRows(
        title=_title(found),
        lanes=lanes,
        bars=bars,
        marks=marks,
        blocks=_merged(blocks),
        labels=labels,
        height_px=y + _GAP_PX / 2,
        longest_bytes=longest,
    )


@dataclasses.dataclass(frozen=True)
class _Lane:
    label: str
    middle: float
    half: float


@dataclasses.dataclass(frozen=True)
class Plans:
    """A module's first and newest plan (one where there is one), and its parameters."""

    module: str
    tensors: tuple[Tensor, ...]
    plans: tuple[Plan, ...]
    others: int

    def tensor(self, index: int) -> Tensor:
        """A parameter; one that no note describes has no bytes."""
        if 0 <= index < len(self.tensors):
            return self.tensors[index]
        return Tensor(f"parameter {index}", (), "unknown", 0)


def plans_of(source: Source) -> Plans | None:
    """What the rows are made from: plans of the module with the most bytes; None without a plan."""
    rank = min(source.ranks, default=0)
    modules = {note.id: note for note in source.notes(Module, rank=rank)}
    by_module: dict[int, dict[int, Plan]] = {}
    for plan in source.notes(Plan, rank=rank):
        by_module.setdefault(plan.module, {})[plan.version] = plan
    if not by_module:
        return None
    sizes = {
        module: (sum(bucket.bytes for bucket in found[max(found)].buckets), module)
        for module, found in by_module.items()
    }
    chosen = max(sizes, key=lambda module: sizes[module])
    found = by_module[chosen]
    versions = sorted({min(found), max(found)})
    note = modules.get(chosen)
    return Plans(
        note.name if note else "a DDP module",
        note.parameters if note else (),
        tuple(found[version] for version in versions),
        len(by_module) - 1,
    )


def _pitch(found: Plans) -> float:
    lanes = 1 + sum(min(len(plan.buckets), _MOST_LANES + 1) for plan in found.plans)
    room = _WANTED_HEIGHT_PX - _GAP_PX * (1 + len(found.plans))
    largest, smallest = _PITCH_PX
    return min(largest, max(smallest, room / lanes))


def _launch_order(found: Plans) -> dict[int, int]:
    """Bucket of each parameter in the newest plan."""
    return {
        index: number
        for number, bucket in enumerate(found.plans[-1].buckets)
        for index in bucket.parameters
    }


def _bars(number: int, bucket: Bucket, lane: _Lane, reason: str) -> list[dict[str, Any]]:
    limit = bucket.bytes if bucket.limit_bytes is None else min(bucket.bytes, bucket.limit_bytes)
    common = {
        "step": number,
        "top": lane.middle - lane.half,
        "bottom": lane.middle + lane.half,
        "head": f"bucket {number}, {size(bucket.bytes)}",
        "time": _told(bucket, reason),
        "detail": "",
    }
    rows = [{**common, "kind": "fill", "left": 0.0, "right": limit}]
    if bucket.bytes > limit:
        edges = {"left": limit, "right": bucket.bytes}
        rows.append({**common, "kind": "overshoot", **edges})
    return rows


def _limit(number: int, bucket: Bucket, lane: _Lane) -> list[dict[str, Any]]:
    if bucket.limit_bytes is None or bucket.limit_bytes > 1.3 * bucket.bytes:
        return []  # far beyond the bar: the label says it
    return [
        {
            "x": bucket.limit_bytes,
            "top": lane.middle - lane.half * 1.3,
            "bottom": lane.middle + lane.half * 1.3,
            "head": f"limit of bucket {number}: {size(bucket.limit_bytes)}",
            "time": "it closes after the tensor that reaches this",
            "detail": "",
        }
    ]


def _blocks(
    found: Plans, indices: list[int], lane: _Lane, order: dict[int, int], plan: Plan | None
) -> list[dict[str, Any]]:
    """Parameters one after the other: coloured by the bucket that the newest plan puts them in."""
    # Beside bars of a bucket they are a thin line in the lower half.
    top, bottom = (-1.0, 1.0) if plan is None else (0.2, 1.0)
    buckets = max(order.values(), default=0) + 1
    rows, left = [], 0.0
    for index in indices:
        tensor, bucket = found.tensor(index), order.get(index, -1)
        right = left + tensor.bytes
        shape = " × ".join(map(str, tensor.shape))
        rows.append(
            {
                "left": left,
                "right": right,
                "top": lane.middle + top * lane.half,
                "bottom": lane.middle + bottom * lane.half,
                "bucket": bucket,
                "colour": _colour(bucket, buckets),
                "edge": 0.5 if len(indices) <= _MOST_EDGES else 0.0,
                "head": tensor.name,
                "time": f"{shape} {tensor.dtype}, {size(tensor.bytes)}",
                "detail": f"in bucket {bucket} of the newest plan" if bucket >= 0 else "no bucket",
            }
        )
        left = right
    return rows


def _merged(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Where there are too many, neighbours of a lane and bucket as one, which names them."""
    if len(blocks) <= _MOST_BLOCKS:
        return blocks
    of_one = -(-len(blocks) // _MOST_BLOCKS) + 1
    groups: list[list[dict[str, Any]]] = []
    for block in blocks:
        last = groups[-1] if groups else []
        alike = last and all(last[-1][key] == block[key] for key in ("top", "bucket"))
        if alike and len(last) < of_one:
            last.append(block)
        else:
            groups.append([block])
    return [
        {
            **group[0],
            "right": group[-1]["right"],
            "head": names([block["head"] for block in group]),
            "time": count(len(group), "parameter"),
        }
        for group in groups[:_MOST_BLOCKS]
    ]


def _colour(bucket: int, buckets: int) -> str:
    if bucket < 0:
        return "#999999"
    share = bucket / max(buckets - 1, 1)
    ends = zip(bytes.fromhex(FIRST[1:]), bytes.fromhex(LAST[1:]), strict=True)
    return "#{:02X}{:02X}{:02X}".format(*(round(a + (b - a) * share) for a, b in ends))


def _label(size_bytes: int, lane: _Lane, text: str) -> dict[str, Any]:
    return {"x": size_bytes, "y": lane.middle, "text": untypeset(text)}


def _parameters(indices: Any) -> str:
    return count(len(indices), "parameter")


def _short(bucket: Bucket, brief: bool) -> str:
    limit = "" if bucket.limit_bytes is None or brief else f" (limit {size(bucket.limit_bytes)})"
    return f"{size(bucket.bytes)}{limit}, {_parameters(bucket.parameters)}"


def _told(bucket: Bucket, reason: str) -> str:
    told = f"{size(bucket.bytes)}, {_parameters(bucket.parameters)}"
    if bucket.limit_bytes is None:
        unlimited = reason == "construction"  # until the rebuild DDP splits by dtype and device
        return f"{told}, {'without a limit' if unlimited else 'its limit is not known'}"
    beyond = bucket.bytes - bucket.limit_bytes
    if beyond > 0:
        return f"{told}, {size(beyond)} over its limit of {size(bucket.limit_bytes)}"
    share = bucket.bytes / bucket.limit_bytes if bucket.limit_bytes else 1.0
    return f"{told}, {share:.0%} of its limit of {size(bucket.limit_bytes)}"


def _title(found: Plans) -> str:
    newest = found.plans[-1]
    sizes = np.array([bucket.bytes for bucket in newest.buckets])
    of = found.module + (f" (and {found.others} more)" if found.others else "")
    if not len(sizes):
        return f"{of}: the plan has no bucket"
    told = f"{of}: plan {newest.version} has {count(len(sizes), 'bucket')}"
    if not sizes.max():
        gradients = sum(len(bucket.parameters) for bucket in newest.buckets)
        return f"{told} for {count(gradients, 'gradient')}, whose sizes are not known"
    if len(sizes) == 1:
        return f"{told} of {size(sizes[0])}, which is sent when the last gradient is ready"
    over = sum(
        bucket.limit_bytes is not None and bucket.bytes > bucket.limit_bytes
        for bucket in newest.buckets
    )
    largest = max(newest.buckets, key=lambda bucket: bucket.bytes)
    text = size(largest.bytes)
    if largest.limit_bytes is not None and largest.bytes > largest.limit_bytes:
        # By a little: rounded, it would be the limit itself.
        text = f"{largest.bytes:,} B" if text == size(largest.limit_bytes) else text
    told = f"{told} up to {text}"
    return f"{told}, {over} over the limit" if over else told
