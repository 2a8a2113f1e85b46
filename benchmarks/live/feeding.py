"""Many events a second, written by two ranks' recorders, through the engines into the store."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from benchmarks.live.frames import TAIL_MS, frames, ways
from benchmarks.live.lab import lab
from benchmarks.live.numbers import Row, quantiles, told
from benchmarks.live.training import SETTLE_SECONDS, Load, begin
from benchmarks.live.usage import Watch

#: Less of what is asked for is not sustained.
_SUSTAINED = 0.98
#: So much later at the end than at the beginning, and a queue grows.
_GROWN_MS = 250.0

#: On a rank: one of its real steps, squeezed into its share of a second and told anew for each.
_FEED = """
import time
import numpy as np
from ddpviz.events import RECORD

def feed(recorder, step, first, begin_ns, steps_per_second, seconds):
    period_ns = 1e9 / steps_per_second
    zero_ns = int(step["begin_ns"].min())
    squeeze = 0.9 * period_ns / (int(step["end_ns"].max()) - zero_ns)
    counted = int(step["sequence"].max() - step["sequence"][step["sequence"] >= 0].min()) + 1
    offsets = {{
        name: np.where(step[name] > 0, (step[name] - zero_ns) * squeeze, 0).astype(np.int64)
        for name in ("begin_ns", "end_ns")
    }}
    names = [name for name in RECORD.names if name != "spare"]
    done, whole = 0, round(seconds * steps_per_second)
    while done < whole:
        due = min(int((time.time_ns() - begin_ns) / period_ns), whole)
        for number in range(done, due):
            rows = step.copy()
            for name, offset in offsets.items():
                at_ns = begin_ns + int(number * period_ns)
                rows[name] = np.where(step[name] > 0, at_ns + offset, 0)
            rows["step"] = first + number
            rows["iteration"] += np.where(step["iteration"] >= 0, number + 1, 0)
            rows["sequence"] += np.where(step["sequence"] >= 0, (number + 1) * counted, 0)
            recorder.write_rows(*rows[names].tolist())
        done = max(done, due)
        time.sleep(0.01)

mine = np.frombuffer(bytes.fromhex({steps!r}[rank]), RECORD)
feed(session.recorder, mine, {first}, {begin_ns}, {steps_per_second}, {seconds})
"""


def measure(load: Load, per_second: int, seconds: float) -> Iterator[Row]:
    """Rows for so many events a second, of both ranks together."""
    part = f"{per_second // 1000} k/s"
    with lab() as found:
        begin(found, load, 2)
        found.run("session.run(20)")
        found.open("explorer", found.value("session.id"))
        time.sleep(SETTLE_SECONDS)
        found.run(
            "last = session.recording.last_step\n"
            "of_rank = {rank: session.recording.records(ranks=rank, steps=last - 1)"
            " for rank in session.recording.ranks}\n"
        )
        size = int(found.value("sum(map(len, of_rank.values()))"))
        found.run(
            f"code = {_FEED!r}.format("
            "steps={rank: one.tobytes().hex() for rank, one in of_rank.items()},"
            "first=last + 1, begin_ns=__import__('time').time_ns() + 1_000_000_000,"
            f"steps_per_second={per_second / size}, seconds={seconds + 4})\n"
            "execution = session.execute(code)"
        )
        time.sleep(4)
        found.take()
        begun = found.value("meter.take()")
        watch = Watch(found)
        time.sleep(seconds)
        page, kernel, usage = found.take(), found.value("meter.take()"), watch.usage()
        time.sleep(5)
        errors = found.value("{rank: one.message for rank, one in execution.errors.items()}")
        if errors:
            raise RuntimeError(f"the ranks could not feed: {errors}")
    rate = kernel["events"] / ((kernel["now_ns"] - begun["now_ns"]) / 1e9)
    lags = kernel["lags_ms"]
    third = max(len(lags) // 3, 1)
    grown = float(np.median(lags[-third:]) - np.median(lags[:third])) if lags else np.nan
    met = rate >= _SUSTAINED * per_second and not kernel["missing"] and grown < _GROWN_MS
    yield Row(
        part,
        "into the store",
        f"{rate:,.0f} events/s, {kernel['missing']} batches missing, lag grows by {grown:.0f} ms",
        f"{per_second:,} events/s",
        bool(met),
        {"per_second": rate, "missing": kernel["missing"], "lag_grows_ms": grown},
    )
    lag = quantiles(lags)
    yield Row(part, "from a rank into the store", told(lag), numbers={"lag_ms": lag})
    shown = frames(page)
    whole = quantiles(ways(kernel["ends"], 2, shown, "timeline", page["now"] - TAIL_MS)[0]["all"])
    yield Row(part, "event to pixel", told(whole), numbers={"latency_ms": whole})
    painted = len({one.painted["timeline"] for one in shown if "timeline" in one.painted})
    rate = painted / seconds
    yield Row(part, "timeline painted", f"{rate:.1f}/s", numbers={"per_second": rate})
    yield usage.row(part)
