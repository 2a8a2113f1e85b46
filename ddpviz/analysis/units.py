"""Durations and sizes as a reader wants them: the digits they deserve, and a unit."""

from __future__ import annotations

import math


def format_duration(duration_ns: float) -> str:
    """A duration in ns as text: "12.3 s", "199 ms", "0.7 ms", "40 µs"; NaN is "unknown"."""
    if math.isnan(duration_ns):
        return "unknown"
    ms = duration_ns / 1e6
    if abs(ms) >= 9999.5:
        return f"{ms / 1000:.1f} s"
    if abs(ms) >= 9.95:
        return f"{ms:.0f} ms"
    if abs(ms) >= 0.095:
        return f"{ms:.1f} ms"
    return f"{ms * 1000:.0f} µs" if ms else "0 ms"


def format_bytes(size_bytes: float) -> str:
    """A size as text in binary units, as ``bucket_cap_mb`` counts: "2.35 MiB", "272 B"."""
    if math.isnan(size_bytes):
        return "unknown"
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size_bytes >= factor or (unit == "MiB" and size_bytes >= factor / 10):
            value = size_bytes / factor
            return f"{value:.0f} {unit}" if value >= 99.95 else f"{value:.3g} {unit}"
    return f"{size_bytes:.0f} B"
