"""The tree of a step's frames that are DDP's, from the rows of a trace."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

import numpy as np

from ddpviz.analysis.units import format_bytes
from ddpviz.explain import lines as sources
from ddpviz.explain.knowledge import Entry, entry, operation
from ddpviz.explain.station import Seen, Station
from ddpviz.traces.columns import Category, Trace
from ddpviz.traces.comms import is_kernel
from ddpviz.traces.phases import python_function
from ddpviz.traces.runs import Run

#: Of a long trace, the tree is of so many steps, the last ones.
_MOST_STEPS = 50


@dataclasses.dataclass(eq=False)
class Frame:
    """A row of the tree: the same frames at the same place, of all steps looked at.

    ``total_ns``: their lengths together; ``times``: how many; ``detail``: what they moved.
    """

    name: str
    station: Station | None
    entry: Entry | None
    total_ns: int = 0
    times: int = 0
    detail: str = ""
    frames: dict[str, Frame] = dataclasses.field(default_factory=dict)

    def all(self, depth: int = 0) -> Iterator[tuple[int, Frame]]:
        """This one and all inside it, with how deep they stand."""
        yield depth, self
        for inner in self.frames.values():
            yield from inner.all(depth + 1)


@dataclasses.dataclass(frozen=True)
class Tree:
    """``steps``: how many it was made from; ``remarks``: what a reader should know of it."""

    frames: tuple[Frame, ...]
    steps: int
    remarks: tuple[str, ...]

    def all(self) -> Iterator[tuple[int, Frame]]:
        """Every frame in order, with how deep it stands."""
        for one in self.frames:
            yield from one.all()


def tree(run: Run, steps: list[int]) -> Tree:
    """The frames of these steps of a rank, the last ones of many."""
    chosen = sorted(set(steps))[-_MOST_STEPS:]
    windows = _windows(run, set(chosen))
    trace = run.trace
    known = [_known(name) is not None for name in trace.names]
    wanted = np.array(known, bool)[trace.name] & (trace.category != Category.RUNTIME)
    wanted &= trace.category != Category.GPU_ANNOTATION
    runs = _runs(run)
    wanted[list(runs)] = False  # each stands below its launch
    inside = np.zeros(len(trace), bool)
    for begin_ns, end_ns in windows:
        low, high = np.searchsorted(trace.begin_ns, (begin_ns, end_ns))
        inside[low:high] = True
    at = np.flatnonzero(wanted & inside)
    top = Frame("", None, None)
    launched = {launch: (place, text) for place, (launch, text) in runs.items()}
    # The thread of the forward first, then autograd's.
    main = run.phases.iterations[0].forward.thread if run.phases.iterations else -1
    thread = np.where(trace.thread[at] == main, -1, trace.thread[at])
    _nest(trace, at[np.lexsort((at, thread))], top, launched, max(len(windows), 1))
    frames = tuple(_pruned(one) for one in top.frames.values())
    remarks = [*_remarks(trace, frames, len(windows), len(set(steps)))]
    if run.on_device:
        remarks.append(
            "lengths of rows are the host's, which called these functions, and a kernel's own "
            "where it is one: what a part took on the GPU stands above"
        )
    return Tree(frames, len(windows), tuple(remarks))


def _windows(run: Run, steps: set[int]) -> list[tuple[int, int]]:
    """Of the host, from the first row of a step to where the next one begins."""
    if not run.phases.iterations:
        return [span for number, span in run.phases.profiler_steps.items() if number in steps]
    bounds: dict[int, tuple[int, int]] = {}
    for it in run.phases.iterations:
        spans = [it.forward, *([it.backward.span] if it.backward else [])]
        known = bounds.get(it.step, (it.forward.begin_ns, 0))
        bounds[it.step] = known[0], max(known[1], *(one.end_ns for one in spans))
    for one in run.phases.optimizers:
        if one.step in bounds:
            begin_ns, end_ns = bounds[one.step]
            bounds[one.step] = begin_ns, max(end_ns, one.span.end_ns)
    return [(begin_ns, end_ns + 1) for step, (begin_ns, end_ns) in bounds.items() if step in steps]


def _runs(run: Run) -> dict[int, tuple[int, str]]:
    """Position of what ran for each collective: its launch's, and what it is about."""
    found: dict[int, tuple[int, str]] = {}
    at = np.flatnonzero(
        np.isin(
            run.trace.name,
            [
                code
                for code, name in enumerate(run.trace.names)
                if is_kernel(name) or name.startswith("gloo:")
            ],
        )
        & (run.trace.category != Category.GPU_ANNOTATION)
    )
    by_begin = {
        (int(run.trace.begin_ns[one]), int(run.trace.end_ns[one])): one for one in at.tolist()
    }
    for caused in run.collectives:
        call = caused.collective
        place = by_begin.get((call.begin_ns, call.end_ns))
        if place is not None:
            about = caused.cause.name.lower().replace("_", " ")
            size = f", {format_bytes(call.bytes)}" if call.bytes >= 0 else ""
            found[place] = call.position, f"{about}{size} {call.dtype}".rstrip()
    return found


def _nest(
    trace: Trace, at: np.ndarray, top: Frame, launched: dict[int, tuple[int, str]], steps: int
) -> None:
    open_: list[tuple[int, int, Frame]] = []  # end, thread, frame
    details: dict[int, tuple[Frame, dict[str, int]]] = {}
    for position in at.tolist():
        begin_ns, end_ns = int(trace.begin_ns[position]), int(trace.end_ns[position])
        thread = int(trace.thread[position])
        while open_ and (
            open_[-1][1] != thread or open_[-1][0] < end_ns or open_[-1][0] <= begin_ns
        ):
            open_.pop()
        above = open_[-1][2] if open_ else top
        frame = _count(above, trace.text(position), end_ns - begin_ns)
        open_.append((end_ns, thread, frame))
        run = launched.get(position)
        if run is not None:
            place, text = run
            ran = _count(frame, trace.text(place), int(trace.end_ns[place] - trace.begin_ns[place]))
            told = details.setdefault(id(ran), (ran, {}))[1]
            told[text] = told.get(text, 0) + 1
    for ran, told in details.values():
        shown = [
            text if times == steps else f"{times / steps:.3g} × {text}"
            for text, times in told.items()
        ]
        ran.detail = "; ".join(shown[:4]) + (f"; {len(shown) - 4} more" if len(shown) > 4 else "")


def _count(above: Frame, row: str, length_ns: int) -> Frame:
    found = _known(row)
    station, one = found if found is not None else (None, None)
    name = station.name if station is not None else row
    frame = above.frames.get(name)
    if frame is None:
        frame = above.frames[name] = Frame(name, station, one)
    frame.total_ns += length_ns
    frame.times += 1
    return frame


@functools.cache
def _known(row: str) -> tuple[Station, Entry] | None:
    """What a row is about; None where nothing is known of it."""
    called = python_function(row)
    if called is not None:
        file, function = called
        one = entry(file, function)
        if one is None:
            return None
        full = one.function if not one.whole_class else function
        return _station(full, one, file and one.file, full), one
    one = operation(_as_known(row))
    return None if one is None else (_station(_short(row), one, one.file, one.function), one)


def _station(name: str, one: Entry, file: str, function: str) -> Station:
    return Station(name, Seen.RAN, 0, 0, "", one, file, function, 0, None, ())


def _as_known(row: str) -> str:
    """NCCL's kernels had another name before 2.18."""
    return row.replace("ncclKernel_", "ncclDevKernel_", 1) if is_kernel(row) else row


def _short(row: str) -> str:
    return row.partition("(")[0] if is_kernel(row) else row


def _pruned(frame: Frame) -> Frame:
    """Without rows that say what the row above them says."""
    inner: dict[str, Frame] = {}
    for name, one in frame.frames.items():
        below = _pruned(one)
        if one.entry is not None and one.entry is frame.entry and one.times == frame.times:
            inner.update(below.frames)
        else:
            inner[name] = below
    frame.frames = inner
    return frame


def _remarks(trace: Trace, frames: tuple[Frame, ...], steps: int, all_steps: int) -> Iterator[str]:
    if not steps:
        return
    if steps < all_steps:
        yield f"frames are of the last {steps} of {all_steps} steps"
    if not (trace.category == Category.PYTHON).any():
        yield (
            "the trace has no Python functions, so only annotations and operations are told: "
            "record it with with_stack=True"
        )
    here = sources.installed()
    if frames:
        yield f"lines are those of torch {here.version}, as installed: traces name no version"
