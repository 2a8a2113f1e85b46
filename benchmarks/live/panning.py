"""A large recording: panning, zooming and going to another step, by the mouse."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.live.lab import Lab, lab
from benchmarks.live.numbers import Row, quantiles, told
from benchmarks.live.training import Load, begin
from benchmarks.live.usage import Watch

GOAL_MS = 100.0
#: Where an element's middle is on the page.
_MIDDLE = """(selector) => {
    const { x, y, width, height } = document.querySelector(selector).getBoundingClientRect();
    return [x + width / 2, y + height / 2];
}"""
_CONTROL = 2
_LEFT: dict[str, Any] = {"button": "left", "buttons": 1, "clickCount": 1}
_TIMELINE = ".ddpviz-panel .ddpviz-figure[data-view=timeline]"
_TIMES = 24
_PAUSE_SECONDS = 0.12
_STEPS = 8
_ANOTHER_SECONDS = 1.5

#: Real steps, told again and again with later times and numbers.
_LARGE = """
import numpy as np
from ddpviz.events import Batch, Configuration, Group, Label, Module, Plan, Process
from ddpviz.explorer import announce
from ddpviz.recording import Recording

def larger(recording, events):
    large = Recording(bound=events + 100_000)
    steps = range(2, recording.last_step)
    of_rank = {rank: recording.records(ranks=rank, steps=steps) for rank in recording.ranks}
    begin_ns = min(int(found["begin_ns"].min()) for found in of_rank.values())
    length_ns = max(int(found["end_ns"].max()) for found in of_rank.values()) - begin_ns
    counts = {rank: int(found["sequence"].max()) + 1 for rank, found in of_rank.items()}
    kinds = (Label, Process, Group, Module, Plan, Configuration)
    notes = {
        rank: tuple(note for kind in kinds for note in recording.notes(kind, rank))
        for rank in recording.ranks
    }
    lap = 0
    while len(large) < events:
        for rank, found in of_rank.items():
            records = found.copy()
            for name in ("begin_ns", "end_ns"):
                records[name] += np.where(found[name] > 0, lap * length_ns, 0)
            for name in ("step", "iteration"):
                records[name] += np.where(found[name] >= 0, lap * len(steps) - 2, 0)
            records["sequence"] += np.where(found["sequence"] >= 0, lap * counts[rank], 0)
            large.append(Batch(rank, lap, records, () if lap else notes[rank]))
        lap += 1
    return large
"""


_TRACE = """
import time
import ddpviz
from ddpviz.explorer import announce
began = time.monotonic()
large = ddpviz.load({path!r})
took = time.monotonic() - began
subject = announce(large)
"""


def measure(load: Load, events: int, trace: Path | None) -> Iterator[Row]:
    """Rows for a recording of so many events, or for a trace (a folder of them) in its place."""
    part = f"{events / 1e6:g} M" if trace is None else "trace"
    with lab() as found:
        if trace is None:
            begin(found, load, 2)
            found.run("session.run(40)")
            found.run(_LARGE)
            found.run(f"large = larger(session.recording, {events})")
            found.run("session.close(); subject = announce(large)")
        else:
            found.run(_TRACE.format(path=str(trace)))
            yield Row(part, "loaded", f"{found.value('took'):.1f} s")
        began = time.monotonic()
        found.open("explorer", found.value("subject.id"))
        yield Row(part, "explorer opened", f"{time.monotonic() - began:.1f} s")
        time.sleep(3)
        many, steps = found.value("[len(large), large.last_step + 1]")
        watch = Watch(found)
        yield from _moved(found, part, "zoom, by the wheel", "wheel", _zoom)
        yield from _moved(found, part, "pan, by dragging", "pointermove", _pan)
        yield _stepped(found, part)
        usage = watch.usage()
        yield usage.row(part, f"{many:,} events, {steps:,} steps; ")


def _moved(
    lab: Lab, part: str, what: str, kind: str, move: Callable[[Lab, float, float], None]
) -> Iterator[Row]:
    """From each event of the mouse to the first picture that it changed."""
    x, y = lab.page.call(_MIDDLE, f"{_TIMELINE} .bk-Figure")
    lab.take()
    lab.tick(True)
    move(lab, x, y)
    time.sleep(1)
    lab.tick(False)
    taken = lab.take()
    spent, lost = _until_changed(taken, kind)
    found = quantiles(spent)
    said = told(found) + (f", {lost} changed nothing" if lost else "")
    met = found["p95"] <= GOAL_MS and not lost if found["n"] else None
    yield Row(part, what, said, f"p95 <= {GOAL_MS:g} ms", met, {"ms": found, "lost": lost})
    ticks = quantiles(np.diff(taken["ticks"]))
    yield Row(part, "frame time meanwhile", told(ticks), numbers={"frame_ms": ticks})


def _until_changed(taken: dict[str, Any], kind: str) -> tuple[list[float], int]:
    """Times in ms, and how many events changed no picture."""
    changed: list[tuple[float, float]] = []
    before = None
    for _, view, painted, presented, start, end in taken["painted"]:
        if view == "timeline" and (start, end) != before:
            changed.append((painted, presented))
            before = start, end
    spent = []
    inputs = [at for of, at in taken["inputs"] if of == kind]
    for at in inputs:
        later = [presented for painted, presented in changed if painted >= at]
        spent += [later[0] - at] if later else []
    return spent, len(inputs) - len(spent)


def _zoom(lab: Lab, x: float, y: float) -> None:
    lab.page.mouse("mouseMoved", x, y)
    for number in range(_TIMES):
        by = -100 if number < _TIMES / 2 else 100
        lab.page.mouse("mouseWheel", x, y, deltaX=0, deltaY=by, modifiers=_CONTROL)
        time.sleep(_PAUSE_SECONDS)


def _pan(lab: Lab, x: float, y: float) -> None:
    lab.page.call(
        """async () => {
            const { model } = await window.ddpvizMeter.plot("timeline");
            model.toolbar.tools.find((tool) => tool.type === "PanTool").active = true;
        }"""
    )
    lab.page.mouse("mouseMoved", x, y)
    lab.page.mouse("mousePressed", x, y, **_LEFT)
    lab.page.mouse("mouseMoved", x + 20, y, **_LEFT)
    time.sleep(_PAUSE_SECONDS)
    lab.take()  # a drag begins some px after the button went down
    for number in range(_TIMES):
        lab.page.mouse("mouseMoved", x + 20 + 8 * (number + 1), y, **_LEFT)
        time.sleep(_PAUSE_SECONDS)
    lab.page.mouse("mouseReleased", x + 20 + 8 * _TIMES, y, **_LEFT)


def _stepped(lab: Lab, part: str) -> Row:
    """From a click on "previous step" until that step is painted; the kernel draws it."""
    x, y = lab.page.call(_MIDDLE, '.ddpviz-panel [data-title^="Previous step"]')
    spent = []
    for _ in range(_STEPS):
        before = int(lab.page.call("() => document.querySelector('.ddpviz-steps input').value"))
        lab.take()
        lab.page.mouse("mousePressed", x, y, **_LEFT)
        lab.page.mouse("mouseReleased", x, y, **_LEFT)
        time.sleep(_ANOTHER_SECONDS)
        taken = lab.take()
        steps = {sequence: shown.get("timeline") for sequence, _, shown in taken["drawn"]}
        spent += [
            presented - at
            for _, at in [one for one in taken["inputs"] if one[0] == "click"]
            for sequence, view, _, presented, _, _ in taken["painted"]
            if view == "timeline" and steps.get(sequence) == before - 1
        ][:1]
    found = quantiles(spent)
    said = f"{told(found)} of {_STEPS}"
    return Row(part, "another step, by its button", said, numbers={"ms": found})
