"""What the live explorer does, in a real JupyterLab with headless Chromium.

Five parts, each in a JupyterLab, a kernel and a page of its own:

* latency: from the end of a step, as its last rank's recorder wrote it, until the first frame with
  that step, or a later one, was to be seen in the timeline. Clocks: ``time.time_ns`` on ranks and
  in the kernel, ``performance.timeOrigin + performance.now()`` in the page, all of one host. Seen
  means: at the next animation frame after the one in which Bokeh painted, so up to 17 ms late and
  never early. An event inside a step waits for the step's end first, as the timeline shows whole
  steps. Shares: until the kernel's recording has it (flush), until a frame leaves the kernel by
  the date of its message (kernel: waits for its turn, is computed), until the page's socket has it
  (wire), until the figures hold its data (draw), until seen (paint).
* pan: zooming, panning and changing the step by the mouse over a recording of 1 M events, real
  steps told again and again; from the mouse's event to the picture that it changed.
* feed: two ranks' recorders write 50,000 events a second, which go the usual way into the store.
* slow: the page's thread slowed down by Chromium; the most frames that were sent and not yet seen.
* memory: minutes of training; slopes over the last three quarters.

    .venv/bin/python -m benchmarks.live [--only latency,pan] [--minutes 10] [--json live.json]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.live import feeding, latency, memory, panning, slow
from benchmarks.live.devtools import version
from benchmarks.live.numbers import Row
from benchmarks.live.training import Load
from benchmarks.live.usage import machine, versions

PARTS = ("latency", "pan", "feed", "slow", "memory")


def main() -> None:
    given = _arguments()
    load = Load(given.workload, given.steps_per_second)
    parts: dict[str, Callable[[], Iterator[Row]]] = {
        "latency": lambda: latency.measure(load, given.engines, given.seconds),
        "pan": lambda: panning.measure(load, given.events, given.trace),
        "feed": lambda: feeding.measure(load, given.events_per_second, given.seconds),
        "slow": lambda: slow.measure(load, given.slower, given.seconds),
        "memory": lambda: memory.measure(load, given.minutes),
    }
    about = f"{versions(version())}\n{machine()}"
    print(about, flush=True)
    rows: list[Row] = []
    for name in given.only:
        for row in parts[name]():
            print(row, flush=True)
            rows.append(row)
    if any(row.numbers.get("disturbed") for row in rows):
        print("Others used much of the machine: the times are not those of ddpviz alone.")
    missed = [row for row in rows if row.met is False]
    print(f"{len(missed)} of {sum(bool(row.goal) for row in rows)} goals missed")
    if given.json is not None:
        told = {"about": about, "rows": [dataclasses.asdict(row) for row in rows]}
        given.json.write_text(json.dumps(told, indent=1))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n")[0], prog="python -m benchmarks.live"
    )
    parser.add_argument("--only", type=_names, default=PARTS, help=f"parts: {','.join(PARTS)}")
    parser.add_argument("--engines", type=_numbers(int), default=[2, 4, 8])
    parser.add_argument("--workload", default="convnet")
    parser.add_argument(
        "--steps-per-second", type=float, help="at most so many; without it as many as go"
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="of each latency, feed, slow")
    parser.add_argument("--minutes", type=float, default=3.0, help="of memory")
    parser.add_argument("--events", type=int, default=1_000_000, help="in the recording of pan")
    parser.add_argument("--trace", type=Path, help="pan over it, a file or folder, instead")
    parser.add_argument("--events-per-second", type=int, default=50_000, help="of feed")
    parser.add_argument("--slower", type=_numbers(float), default=[6.0], help="factors of slow")
    parser.add_argument("--json", type=Path, help="leave all numbers in this file")
    return parser.parse_args()


def _names(text: str) -> list[str]:
    found = text.split(",")
    if unknown := set(found) - set(PARTS):
        raise argparse.ArgumentTypeError(
            f"found {', '.join(sorted(unknown))}, expected some of {', '.join(PARTS)}"
        )
    return found


def _numbers(kind: Callable[[str], float]) -> Callable[[str], list[float]]:
    def read(text: str) -> list[float]:
        return [kind(one) for one in text.split(",")]

    return read


if __name__ == "__main__":
    main()
