"""How large a deck of slides is, and how long it takes, beside the page of the same recording.

Run: ``python benchmarks/slides.py [RECORDING] [--events 1000000]``. What a real run recorded (a
given one, or one of two ranks made here) is repeated until it has that many events. Goal: a deck of
1 M events stays below 15 MB.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from pathlib import Path

import numpy as np

import ddpviz
from ddpviz.events import Batch, Configuration, Group, Label, Module, Note, Plan, Process
from ddpviz.export.page import page
from ddpviz.export.slides import LIMIT_BYTES
from ddpviz.export.slides.deck import slides_page
from ddpviz.recording import Recording

_NOTES = (Process, Group, Module, Label, Plan, Configuration)
_TRAINED_STEPS = 30
#: Steps of the beginning, which are not like the others.
_FIRST = 3


@dataclasses.dataclass(frozen=True)
class Written:
    what: str
    size_bytes: int
    seconds: float


def trained(folder: Path) -> Recording:
    """A run of the built-in mlp: 64 parameters on two ranks."""
    with ddpviz.Session(engines=2, directory=folder) as session:
        session.load("mlp", bucket_cap_mb=0.5)
        session.run(steps=_TRAINED_STEPS)
        return session.recording


def repeated(real: Recording, events: int) -> Recording:
    """The real steps again and again, each time later, under new numbers."""
    found = Recording(bound=2 * events + len(real))
    every = real.records()
    again = every[every["step"] >= _FIRST]
    steps = real.last_step + 1 - _FIRST
    length_ns = int(again["end_ns"].max() - again["begin_ns"].min())
    for rank in real.ranks:
        notes: tuple[Note, ...] = tuple(
            note for kind in _NOTES for note in real.notes(kind, rank=rank)
        )
        found.append(Batch(rank, 0, every[every["rank"] == rank], notes))
    rounds = max(0, -(-(events - len(every)) // len(again)))
    for number in range(1, rounds + 1):
        for rank in real.ranks:
            rows = again[again["rank"] == rank].copy()
            for name in ("begin_ns", "end_ns"):
                rows[name][rows[name] > 0] += number * length_ns
            in_step = rows["step"] >= 0
            for name in ("step", "iteration"):
                rows[name][in_step & (rows[name] >= 0)] += number * steps
            called = rows["sequence"] >= 0
            rows["sequence"][called] += number * (int(np.ptp(again["sequence"])) + 1)
            found.append(Batch(rank, number, rows))
    return found


def written(recording: Recording) -> list[Written]:
    found = []
    for what, make in (("deck of slides", slides_page), ("page of all views", page)):
        begin = time.perf_counter()
        text = make(recording)
        found.append(Written(what, len(text.encode("utf-8")), time.perf_counter() - begin))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("recording", nargs="?", type=Path, help="of a real run")
    parser.add_argument("--events", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        real = ddpviz.load(options.recording) if options.recording else trained(Path(folder) / "r")
        for events in (len(real), options.events):
            recording = repeated(real, events)
            print(f"{len(recording):,} events, {recording.last_step + 1:,} steps")
            for one in written(recording):
                size = one.size_bytes / 1e6
                goal = "met" if one.size_bytes < LIMIT_BYTES else "missed"
                told = f", goal of {LIMIT_BYTES / 1e6:.0f} MB {goal}" if "deck" in one.what else ""
                print(f"  {one.what:<20} {size:6.2f} MB in {one.seconds:5.1f} s{told}")


if __name__ == "__main__":
    main()
