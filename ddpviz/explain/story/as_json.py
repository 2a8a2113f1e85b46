"""A story as JSON has it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from ddpviz.explain.as_json import explanation
from ddpviz.explain.story.frames import Frame
from ddpviz.explain.story.telling import Story


def story(found: Story) -> dict[str, Any]:
    """What is not known is null."""
    return {
        "title": found.title,
        "rank": found.rank,
        "doubts": list(found.doubts),
        "step_ms": _number(found.step_ms),
        "costs": [
            {name: _number(value) for name, value in dataclasses.asdict(cost).items()}
            for cost in found.costs
        ],
        "not_wrong": list(found.fine),
        "ranks": [
            {
                "rank": one.rank,
                "window_ms": one.window_ns / 1e6,
                "compute_ms": _number(one.compute_ns / 1e6),
                "communication_beside_compute_ms": _number(one.hidden_ns / 1e6),
                "communication_alone_ms": _number(one.exposed_ns / 1e6),
                "other_ms": _number(one.other_ns / 1e6),
                "beside_compute_share": _number(one.overlap),
            }
            for one in found.shares
        ],
        "clocks": [
            {
                "rank": one.rank,
                "offset_us": _number(one.offset_ns / 1e3),
                "residual_us": _number(one.residual_ns / 1e3),
                "worst_us": _number(one.worst_ns / 1e3),
                "collectives": one.matched,
                "moved_us": -one.moved_ns / 1e3,
                "drift_ppm": _number(one.drift_ppm),
            }
            for one in found.clocks
        ],
        "skew": [
            {
                "collective": one.name,
                "steps": one.times,
                "always_late": one.late,
                "apart_us": one.spread_ns / 1e3,
                "worst_us": one.worst_ns / 1e3,
                "last": {str(rank): times for rank, times in one.last},
            }
            for one in found.skews
        ],
        "frames": [_frame(one, found.tree.steps) for one in found.tree.frames],
        "remarks": [*found.remarks, *found.tree.remarks],
    }


def _frame(one: Frame, steps: int) -> dict[str, Any]:
    station = one.station
    return {
        "name": one.name,
        "times_a_step": one.times / max(steps, 1),
        "ms_a_step": one.total_ns / 1e6 / max(steps, 1),
        "detail": one.detail or None,
        "place": (station.place or None) if station else None,
        "link": (station.link or None) if station else None,
        "explanation": None if one.entry is None else explanation(one.entry),
        "frames": [_frame(inner, steps) for inner in one.frames.values()],
    }


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
