"""The rows of bucket lanes: five stretches per bucket, four where waiting and transfer cannot be
told apart, and a tick per parameter."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from ddpviz.events import Kind, Plan
from ddpviz.views.columns import Row
from ddpviz.views.lanes import Lane, Lanes
from ddpviz.views.source import StepSource
from ddpviz.views.text import count, duration, names, sent_size, size

#: Half height of the filling stretch relative to the lane's: it is not communication yet.
_THIN = 0.42

#: Stretch → columns of the table it begins and ends at, the one at which it has ended at the latest
#: ("" if none), and those that make it derived.
_STRETCHES: dict[str, tuple[str, str, str, frozenset[str]]] = {
    "filling": ("first_ready_ns", "full_ns", "launched_ns", frozenset({"filling_ms"})),
    "head_of_line": (
        "full_ns",
        "turn_ns",
        "launched_ns",
        frozenset({"head_of_line_ms", "full_ns"}),
    ),
    "launch_delay": ("turn_ns", "launched_ns", "", frozenset({"launch_delay_ms", "turn_ns"})),
    "wait_for_rank": ("launched_ns", "last_launched_ns", "", frozenset({"wait_for_rank_ms"})),
    "transfer": ("last_launched_ns", "done_ns", "copied_ns", frozenset({"transfer_ms"})),
    "in_flight": ("launched_ns", "done_ns", "copied_ns", frozenset({"done_ns"})),
}
_MARKS = (
    "first_ready_ns",
    "full_ns",
    "turn_ns",
    "launched_ns",
    "last_launched_ns",
    "done_ns",
    "copied_ns",
)


def bucket_rows(source: StepSource, lanes: Lanes, end_ms: float) -> tuple[list[Row], list[Row]]:
    """Spans and ticks of all bucket lanes. ``end_ms``: where what never completed is cut off."""
    spans: list[Row] = []
    ticks: list[Row] = []
    table = source.buckets
    marks = {column: relative_ms(table[column], source.zero_ns).tolist() for column in _MARKS}
    ready = _Ready(source)
    several = len(np.unique(table["iteration"])) > 1
    columns = table.dtype.names or ()
    for position, values in enumerate(table.tolist()):
        row = dict(zip(columns, values, strict=True))
        key = (row["rank"], row["module"], row["bucket"])
        lane = lanes.buckets.get(key)
        if lane is None:
            continue
        name = f"bucket {key[2]} of rank {key[0]}"
        if several:
            name += f", iteration {row['iteration']}"
        at = {column: mark[position] for column, mark in marks.items()}
        spans += _stretches(row, name, lane, at, end_ms)
        ticks += _ticks(source, row, name, lane, ready)
    return spans, ticks


def relative_ms(times_ns: np.ndarray, zero_ns: int) -> np.ndarray:
    """Epoch ns → float64 ms since ``zero_ns``; NaN where unknown (0). Subtracts, then rounds."""
    return np.where(times_ns == 0, np.nan, (times_ns - zero_ns) / 1e6)


def _stretches(row: Row, name: str, lane: Lane, at: dict[str, float], end_ms: float) -> list[Row]:
    derived = set(row["derived"].split(","))
    rows = []
    left_out = ("wait_for_rank", "transfer") if _is_unsplit(row) else ("in_flight",)
    for kind, (begins, ends, at_latest, makes_derived) in _STRETCHES.items():
        if kind in left_out:
            continue
        left, right, more = at[begins], at[ends], ""
        if math.isnan(left):
            continue
        is_derived = not makes_derived.isdisjoint(derived)
        if math.isnan(right) and not math.isnan(at.get(at_latest, math.nan)):
            right, is_derived = at[at_latest], True
            more = "\nended here at the latest: its end was not recorded (derived)"
        elif math.isnan(right):
            # Never launched, or launched and never completed: drawn up to the end of the record.
            right = end_ms
            more = "\nnot ended when the record ended"
        elif kind in ("transfer", "in_flight") and "done_ns" in derived and row["unsplit"] == "":
            more = "\nat most so long: its end was recorded after the rank had gone on (derived)"
        if right <= left:
            continue
        half = lane.half * (_THIN if kind == "filling" else 1.0)
        head, detail = _told(kind, row, name)
        if "bucket" in derived:
            more += "\nwhich bucket and parameters: inferred from the trace"
        rows.append(
            {
                "kind": kind,
                "rank": row["rank"],
                "left": left,
                "right": right,
                "top": lane.middle - half,
                "bottom": lane.middle + half,
                "derived": is_derived,
                "head": head,
                "time": interval(left, right),
                "detail": detail + more,
            }
        )
    return rows


def _told(kind: str, row: Row, name: str) -> tuple[str, str]:
    """Head and detail of a stretch's hover."""
    if kind == "filling":
        parameters = f"{sent_size(row['bytes'])}, {count(row['parameters'], 'parameter')}"
        return f"{name} fills", f"{parameters}\nlast ready: {row['last_parameter']}"
    if kind == "head_of_line":
        return f"{name} waits its turn", (
            "full, but the bucket before it was not launched yet:\n"
            "DDP launches buckets in order (derived)"
        )
    if kind == "launch_delay":
        return f"{name} is full, not yet launched", (
            "full, and its turn: the Reducer copies its last gradient in and\n"
            "launches it, which is seen once Python's GIL is free (derived)"
        )
    if kind == "wait_for_rank":
        other = f"rank {'?' if row['last_rank'] < 0 else row['last_rank']}"
        return f"{name} waits for {other}", f"launched here, not yet on {other}"
    if kind == "transfer":
        sent = f"all ranks have launched it: {sent_size(row['bytes'])} on the way"
        return f"{name} is transferred", sent
    return f"{name} is in flight", (
        f"{sent_size(row['bytes'])}; waiting for a rank and transfer are not told apart:"
        f"\n{row['unsplit']}"
    )


def _is_unsplit(row: Row) -> bool:
    """A bucket that never completed still waits for the rank that is known to be absent."""
    return row["unsplit"] != "" and (row["done_ns"] > 0 or row["last_rank"] < 0)


def interval(left_ms: float, right_ms: float) -> str:
    """ "199 ms, from 271.00 to 470.00 ms"."""
    return f"{duration(right_ms - left_ms)}, from {left_ms:.2f} to {right_ms:.2f} ms"


#: When a parameter's gradient was ready: its index, ns since the epoch, bytes.
_GradReady = tuple[int, int, int]


class _Ready:
    """GRAD_READY records of a step by bucket, in their order."""

    def __init__(self, source: StepSource) -> None:
        records = source.records[source.records["kind"] == Kind.GRAD_READY]
        self._of_run: dict[tuple[int, int, int], list[_GradReady]] = {}
        self._of_bucket: dict[tuple[int, int, int, int], dict[int, list[_GradReady]]] = {}
        fields = ("rank", "module", "iteration", "index", "begin_ns", "bytes")
        for rank, module, iteration, *ready in zip(
            *(records[name].tolist() for name in fields), strict=True
        ):
            of_run = self._of_run.setdefault((rank, module, iteration), [])
            of_run.append((ready[0], ready[1], ready[2]))

    def of(self, row: Row, plan: Plan) -> Iterable[_GradReady]:
        """Those of a bucket; ``row``: of the table of buckets; ``plan``: the bucket's."""
        run = (row["rank"], row["module"], row["iteration"])
        key = (*run, row["plan_version"])
        if key not in self._of_bucket:
            found = self._of_bucket[key] = {}
            owner = {
                index: number
                for number, bucket in enumerate(plan.buckets)
                for index in bucket.parameters
            }
            for ready in self._of_run.get(run, ()):
                found.setdefault(owner.get(ready[0], -1), []).append(ready)
        return self._of_bucket[key].get(row["bucket"], ())


def _ticks(source: StepSource, row: Row, name: str, lane: Lane, ready: _Ready) -> list[Row]:
    plan = source.plans.get((row["rank"], row["module"], row["plan_version"]))
    note = source.modules.get((row["rank"], row["module"]))
    if plan is None:
        return []
    tensors = note.parameters if note else ()
    top, bottom = lane.middle - lane.half * 0.8, lane.middle + lane.half * 0.8
    rows = []
    for index, ready_ns, size_bytes in ready.of(row, plan):
        at = (ready_ns - source.zero_ns) / 1e6
        head, detail = f"parameter {index}", name
        if index < len(tensors):
            tensor = tensors[index]
            shape = " × ".join(map(str, tensor.shape))
            head, detail = tensor.name, f"{shape} {tensor.dtype}, {size(size_bytes)}\n{name}"
        rows.append(
            {
                "rank": row["rank"],
                "x": at,
                "top": top,
                "bottom": bottom,
                "head": head,
                "time": f"gradient ready at {at:.2f} ms",
                "detail": detail,
            }
        )
    return rows


def merged(ticks: list[Row], pixel_ms: float) -> list[Row]:
    """Ticks of a lane that fall on the same pixel as one, which names what it stands for."""
    groups: dict[tuple[float, int], list[Row]] = {}
    for tick in ticks:
        groups.setdefault((tick["top"], int(tick["x"] / pixel_ms)), []).append(tick)
    rows = []
    for group in groups.values():
        if len(group) == 1:
            rows.append(group[0])
            continue
        first, last = group[0]["x"], group[-1]["x"]
        rows.append(
            {
                **group[0],
                "head": f"{len(group)} parameters",
                "time": f"gradients ready from {first:.2f} to {last:.2f} ms",
                "detail": names([tick["head"] for tick in group]),
            }
        )
    return rows
