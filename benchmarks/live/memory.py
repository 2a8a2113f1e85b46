"""Minutes of training with the explorer open: CPU and memory of kernel and page, flat or not."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator

from benchmarks.live.lab import Lab
from benchmarks.live.numbers import Row, slope
from benchmarks.live.training import Load, trained
from benchmarks.live.usage import Watch, of_role, private_bytes, resident_bytes

#: Of its mean may anything grow in the time that the issue names.
_GOAL_MINUTES, _GOAL_SHARE = 10.0, 0.05
_EVERY_SECONDS = 5.0
#: The first part of the time fills caches and the 200 steps that are shown.
_WARM_SHARE = 0.25
_MB = 1e6


@dataclasses.dataclass(frozen=True)
class _Kept:
    """``goal``: whether it has to be flat."""

    name: str
    unit: str
    goal: bool = True


_ALL = (
    _Kept("kernel without the recording", "MB"),
    _Kept("kernel", "MB", goal=False),
    _Kept("kernel, resident", "MB", goal=False),
    _Kept("server", "MB"),
    _Kept("page", "MB"),
    _Kept("page's JavaScript heap", "MB"),
    _Kept("page's DOM nodes", ""),
    _Kept("page's event listeners", ""),
)


def measure(load: Load, minutes: float) -> Iterator[Row]:
    """Rows of one run; a sample collects the page's garbage first."""
    part = f"{minutes:g} min"
    samples: list[dict[str, float]] = []
    with trained(load, 2) as lab:
        lab.run("meter.close(); meter = Meter(session.recording, ends=False)")
        watch, begin = Watch(lab), time.monotonic()
        while (spent := time.monotonic() - begin) < 60 * minutes:
            samples.append({"seconds": spent, **_sample(lab)})
            time.sleep(_EVERY_SECONDS)
        usage, events = watch.usage(), lab.value("meter.take()")["events"]
        painted = sum(int(one["painted"]) for one in samples[1:])
        seconds = samples[-1]["seconds"] - samples[0]["seconds"]
    yield usage.row(part)
    said = f"{events / spent:,.0f} events/s recorded, {painted / seconds:.1f} pictures/s"
    yield Row(part, "meanwhile", said, numbers={"samples": samples})
    warm = [one for one in samples if one["seconds"] >= _WARM_SHARE * spent]
    if len(warm) < 4:
        return
    for kept in _ALL:
        line = slope([one["seconds"] for one in warm], [one[kept.name] for one in warm])
        first, last = warm[0][kept.name], warm[-1][kept.name]
        yield Row(
            part,
            kept.name,
            f"{line.per_minute:+.2f} ± {2 * line.error:.2f} {kept.unit}/min; "
            f"{first:,.1f} to {last:,.1f} {kept.unit}".rstrip(),
            f"< {_GOAL_SHARE:.0%} in {_GOAL_MINUTES:g} min" if kept.goal else "",
            line.flat(_GOAL_MINUTES, _GOAL_SHARE) if kept.goal else None,
            dataclasses.asdict(line),
        )


def _sample(lab: Lab) -> dict[str, float]:
    lab.page.ask("HeapProfiler.collectGarbage")
    told = lab.page.ask("Performance.getMetrics")["metrics"]
    metrics = {one["name"]: one["value"] for one in told}
    store = lab.value("meter.store()")["store_bytes"]
    [kernel], servers, pages = (of_role(role, lab) for role in ("kernel", "server", "page"))
    private = private_bytes(kernel)
    return {
        "kernel without the recording": (private - store) / _MB,
        "kernel": private / _MB,
        "kernel, resident": resident_bytes(kernel) / _MB,
        "server": sum(map(private_bytes, servers)) / _MB,
        # A spare renderer that waits for a tab is small beside the page's.
        "page": max(map(private_bytes, pages)) / _MB,
        "page's JavaScript heap": metrics["JSHeapUsedSize"] / _MB,
        "page's DOM nodes": metrics["Nodes"],
        "page's event listeners": metrics["JSEventListeners"],
        "painted": float(len(lab.take()["painted"])),
    }
