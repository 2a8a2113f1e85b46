"""Compile modes side by side, as a front end offers them, has them run, and shows the result."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from ddpviz.engines import Session
from ddpviz.engines.comparing import choices
from ddpviz.views.columns import as_rows

#: Column of :class:`ddpviz.analysis.Comparison` → its heading and unit.
COLUMNS = {
    "step_ms": ("step", "ms"),
    "hidden_communication_ms": ("hidden communication", "ms"),
    "exposed_communication_ms": ("exposed communication", "ms"),
    "collectives": ("collectives per step", "count"),
    "bytes": ("sent per step", "bytes"),
    "graphs": ("graphs", "count"),
    "compile_ms": ("compiling", "ms"),
    "memory_bytes": ("memory", "bytes"),
    "gradient_difference": ("gradients against the first", "relative"),
    "buffers_synced": ("buffers synced", "flag"),
}


def offered(session: Session) -> dict[str, Any]:
    """Modes and backends, with why some cannot be had here. Asks a rank."""
    modes, backends = choices(session)
    return {
        "modes": [dataclasses.asdict(one) for one in modes],
        "backends": [dataclasses.asdict(one) for one in backends],
    }


def run(session: Session, modes: list[str], backend: str, rounds: int) -> dict[str, Any]:
    """Run one to its end: the verdict, and its table. Raises as ``Session.compare``."""
    found = session.compare(modes=modes, backend=backend, rounds=rounds)
    return {
        "verdict": found.verdict,
        "columns": [
            {"name": name, "label": label, "unit": unit} for name, (label, unit) in COLUMNS.items()
        ],
        "rows": [
            {name: _plain(value) for name, value in row.items()} for row in as_rows(found.table)
        ],
        "remark": f"{backend}, {rounds} rounds. The session is idle, with its workload loaded anew",
    }


def _plain(value: Any) -> Any:
    """What JSON can say: nothing for NaN."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
