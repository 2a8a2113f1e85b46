"""From an event on a rank to its pixels, and how smoothly the page runs meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.live.frames import SHARES, TAIL_MS, Frame, frames, ways
from benchmarks.live.numbers import Row, quantiles, told
from benchmarks.live.training import Load, trained
from benchmarks.live.usage import Watch

GOAL_MS = 250.0


def measure(load: Load, engines: list[int], seconds: float) -> Iterator[Row]:
    """Rows for each number of engines."""
    for count in engines:
        yield from _of(load, count, seconds)


def _of(load: Load, engines: int, seconds: float) -> Iterator[Row]:
    part = f"{engines} engines"
    with trained(load, engines) as lab:
        lab.take()
        lab.value("meter.take()")
        watch = Watch(lab)
        time.sleep(seconds)
        page, ends, usage = lab.take(), lab.value("meter.take()")["ends"], watch.usage()
        # Apart from the latency: asking for every animation frame costs something.
        lab.tick(True)
        time.sleep(max(seconds / 3, 3.0))
        ticks = quantiles(np.diff(lab.take()["ticks"]))
        lab.tick(False)
    shown, until = frames(page), page["now"] - TAIL_MS
    yield from _latency(part, load, *ways(ends, engines, shown, "timeline", until), page["clock"])
    found, _ = ways(ends, engines, shown, "steps", until)
    whole = quantiles(found["all"])
    yield Row(part, "event to the view of all steps", told(whole), numbers={"latency_ms": whole})
    yield _painted(part, shown, len({step for _, step, _, _ in ends}) / seconds, seconds)
    yield Row(part, "frame time while streaming", told(ticks), numbers={"frame_ms": ticks})
    yield usage.row(part)


def _latency(
    part: str, load: Load, found: dict[str, list[float]], lost: int, clock_ms: float
) -> Iterator[Row]:
    whole = quantiles(found["all"])
    shares = {name: quantiles(found[name]) for name in SHARES}
    numbers: dict[str, Any] = {
        "latency_ms": whole,
        "shares_ms": shares,
        "never_shown": lost,
        "clock_ms": clock_ms,
    }
    said = told(whole) + (f", {lost} never" if lost else "")
    met = whole["p95"] <= GOAL_MS if whole["n"] else None
    goal = f"p95 <= {GOAL_MS:g} ms"
    yield Row(part, f"event to pixel, {load.said}", said, goal, met, numbers)
    listed = [f"{name} {one['p50']:.0f}/{one['p95']:.0f}" for name, one in shares.items()]
    yield Row(part, "its shares, p50/p95 in ms", ", ".join(listed))


def _painted(part: str, shown: list[Frame], steps: float, seconds: float) -> Row:
    painted = sorted({one.painted["timeline"] for one in shown if "timeline" in one.painted})
    gaps = quantiles(np.diff(painted))
    rate, frame_rate = len(painted) / seconds, len(shown) / seconds
    size = float(np.mean([one.bytes for one in shown])) if shown else 0.0
    said = (
        f"{rate:.1f}/s of {steps:.1f} steps/s, every {told(gaps)}; "
        f"{frame_rate:.1f} frames/s of {size / 1000:.0f} kB"
    )
    numbers = {
        "per_second": rate,
        "steps_per_second": steps,
        "frames_per_second": frame_rate,
        "gaps_ms": gaps,
        "bytes": size,
    }
    return Row(part, "timeline painted", said, numbers=numbers)
