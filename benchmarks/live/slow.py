"""A browser that is too slow: how many frames it is behind."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.live.frames import TAIL_MS, frames, most_behind, ways
from benchmarks.live.lab import Lab
from benchmarks.live.numbers import Row, quantiles, told
from benchmarks.live.training import Load, trained
from benchmarks.live.usage import Watch


def measure(load: Load, rates: list[float], seconds: float) -> Iterator[Row]:
    """Rows for each factor by which the page's thread is slowed down."""
    with trained(load, 2) as lab:
        for rate in rates:
            yield from _slowed(lab, rate, seconds)


def _slowed(lab: Lab, rate: float, seconds: float) -> Iterator[Row]:
    part = f"{rate:g} x slower"
    lab.page.ask("Emulation.setCPUThrottlingRate", rate=rate)
    time.sleep(3)
    lab.take()
    lab.value("meter.take()")
    watch = Watch(lab)
    time.sleep(seconds)
    page, ends, usage = lab.take(), lab.value("meter.take()")["ends"], watch.usage()
    lab.page.ask("Emulation.setCPUThrottlingRate", rate=1)
    time.sleep(3)
    rest = lab.take()  # what was on its way when the meter was read
    taken = {name: page[name] + rest[name] for name in ("received", "drawn", "painted")}
    shown = [one for one in frames(taken) if one.sent < page["now"]]
    most, beyond = most_behind(shown)
    yield Row(
        part,
        "frames sent and not yet seen",
        f"at most {most}; more than one {beyond:.1%} of the time (n {len(shown)})",
        "at most 1",
        most <= 1 if shown else None,
        {"most": most, "share_beyond": beyond, "frames": len(shown)},
    )
    render = quantiles([one.seen - one.received for one in shown])
    yield Row(part, "a frame, from the socket to the screen", told(render), numbers={"ms": render})
    whole = quantiles(ways(ends, 2, shown, "timeline", page["now"] - TAIL_MS)[0]["all"])
    yield Row(part, "event to pixel", told(whole), numbers={"latency_ms": whole})
    yield usage.row(part)
