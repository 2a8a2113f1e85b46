"""The rows of bucket lanes: five stretches per bucket, four where waiting and transfer cannot be
told apart, and a tick per parameter."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from ddpviz.events import Kind
from ddpviz.views.lanes import Lane, Lanes
from ddpviz.views.source import StepSource
from ddpviz.views.text import count, duration, names, size

#: Half height of the filling stretch relative to the lane's: it is not communication yet.
_THIN = 0.42

Row = dict[str, Any]

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


def bucket_rows(source: StepSource, lanes: Lanes, end_ms: float) -> tuple[list[Row], list[Row]]:
    """Spans and ticks of all bucket lanes. ``end_ms``: where what never completed is cut off."""
    spans: list[Row] = []
    ticks: list[Row] = []
    if source.buckets.empty:
        return spans, ticks
    table = source.buckets.reset_index(drop=True)
    marks = {
        column: relative_ms(table[column], source.zero_ns)
        for column in (
            "first_ready_ns",
            "full_ns",
            "turn_ns",
            "launched_ns",
            "last_launched_ns",
            "done_ns",
            "copied_ns",
        )
    }
    ready = _ready_times(source)
    several = table["iteration"].nunique() > 1
    for position, row in enumerate(table.to_dict("records")):
        key = (int(row["rank"]), int(row["module"]), int(row["bucket"]))
        lane = lanes.buckets.get(key)
        if lane is None:
            continue
        name = f"bucket {key[2]} of rank {key[0]}"
        if several:
            name += f", iteration {row['iteration']}"
        at = {column: float(values[position]) for column, values in marks.items()}
        spans += _stretches(row, name, lane, at, end_ms)
        ticks += _ticks(source, row, name, lane, ready)
    return spans, ticks


def relative_ms(column: pd.Series, zero_ns: int) -> np.ndarray:
    """Epoch ns → float64 ms since ``zero_ns``; NaN where unknown. Subtracts before it rounds."""
    shifted = column.astype("Int64") - zero_ns
    return shifted.to_numpy(dtype=np.float64, na_value=np.nan) / 1e6


def _stretches(row: Row, name: str, lane: Lane, at: dict[str, float], end_ms: float) -> list[Row]:
    derived = {part.strip() for part in str(row.get("derived", "")).split(",")}
    details = {
        "filling": f"{size(row['bytes'])}, {count(int(row['parameters']), 'parameter')}"
        f"\nlast ready: {row['last_parameter']}",
        "head_of_line": "full, but the bucket before it was not launched yet:\n"
        "DDP launches buckets in order (derived)",
        "launch_delay": "full, and its turn: the Reducer copies its last gradient in and\n"
        "launches it, which is seen once Python's GIL is free (derived)",
        "wait_for_rank": f"launched here, not yet on rank {_whole(row['last_rank'])}",
        "transfer": f"all ranks have launched it: {size(row['bytes'])} on the way",
        "in_flight": f"{size(row['bytes'])}; waiting for a rank and transfer are not told apart:"
        f"\n{row['unsplit']}",
    }
    heads = {
        "filling": f"{name} fills",
        "head_of_line": f"{name} waits its turn",
        "launch_delay": f"{name} is full, not yet launched",
        "wait_for_rank": f"{name} waits for rank {_whole(row['last_rank'])}",
        "transfer": f"{name} is transferred",
        "in_flight": f"{name} is in flight",
    }
    rows = []
    left_out = {"wait_for_rank", "transfer"} if _is_unsplit(row) else {"in_flight"}
    for kind, (begins, ends, at_latest, makes_derived) in _STRETCHES.items():
        if kind in left_out:
            continue
        left, right, detail = at[begins], at[ends], details[kind]
        if math.isnan(left):
            continue
        is_derived = bool(derived & makes_derived)
        if math.isnan(right) and not math.isnan(at.get(at_latest, math.nan)):
            right, is_derived = at[at_latest], True
            detail += "\nended here at the latest: its end was not recorded (derived)"
        elif math.isnan(right):
            # Never launched, or launched and never completed: drawn up to the end of the record.
            right = end_ms
            detail += "\nnot ended when the record ended"
        elif kind in ("transfer", "in_flight") and "done_ns" in derived and row["unsplit"] == "":
            detail += "\nat most so long: its end was recorded after the rank had gone on (derived)"
        if right <= left:
            continue
        half = lane.half * (_THIN if kind == "filling" else 1.0)
        rows.append(
            {
                "kind": kind,
                "rank": int(row["rank"]),
                "left": left,
                "right": right,
                "top": lane.middle - half,
                "bottom": lane.middle + half,
                "derived": is_derived,
                "head": heads[kind],
                "time": interval(left, right),
                "detail": detail,
            }
        )
    return rows


def _is_unsplit(row: Row) -> bool:
    """A bucket that never completed still waits for the rank that is known to be absent."""
    done, last_rank = bool(pd.notna(row["done_ns"])), bool(pd.notna(row["last_rank"]))
    return row["unsplit"] != "" and (done or not last_rank)


def _whole(value: Any) -> str:
    return "?" if pd.isna(value) else str(int(value))


def interval(left_ms: float, right_ms: float) -> str:
    """ "199 ms, from 271.00 to 470.00 ms"."""
    return f"{duration(right_ms - left_ms)}, from {left_ms:.2f} to {right_ms:.2f} ms"


def _ready_times(source: StepSource) -> dict[tuple[int, int, int], np.ndarray]:
    """GRAD_READY records by (rank, module, iteration)."""
    ready = source.records[source.records["kind"] == Kind.GRAD_READY]
    groups: dict[tuple[int, int, int], np.ndarray] = {}
    if not len(ready):
        return groups
    keys = ready[["rank", "module", "iteration"]]
    for key in np.unique(keys):
        groups[tuple(int(part) for part in key)] = ready[keys == key]  # type: ignore[index]
    return groups


def _ticks(
    source: StepSource,
    row: Row,
    name: str,
    lane: Lane,
    ready: dict[tuple[int, int, int], np.ndarray],
) -> list[Row]:
    rank, module = int(row["rank"]), int(row["module"])
    plan = source.plans.get((rank, module, int(row["plan_version"])))
    records = ready.get((rank, module, int(row["iteration"])))
    note = source.modules.get((rank, module))
    if plan is None or records is None or int(row["bucket"]) >= len(plan.buckets):
        return []
    of_bucket = records[np.isin(records["index"], plan.buckets[int(row["bucket"])].parameters)]
    rows = []
    for record in of_bucket:
        index = int(record["index"])
        tensor = note.parameters[index] if note and index < len(note.parameters) else None
        at = (int(record["begin_ns"]) - source.zero_ns) / 1e6
        shape = " × ".join(map(str, tensor.shape)) if tensor else ""
        rows.append(
            {
                "rank": rank,
                "x": at,
                "top": lane.middle - lane.half * 0.8,
                "bottom": lane.middle + lane.half * 0.8,
                "head": tensor.name if tensor else f"parameter {index}",
                "time": f"gradient ready at {at:.2f} ms",
                "detail": f"{shape} {tensor.dtype}, {size(int(record['bytes']))}\n{name}"
                if tensor
                else name,
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
