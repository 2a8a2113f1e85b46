"""The constructions of DDP modules, one after the other, and what happened between the steps.

Records outside any step have step -1, all constructions alike. Each is told from the others by
its module and by the time its constructor ran, on every rank's own clock. It is numbered like a
step of its own: -1, -2, … in the order of time.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from ddpviz.analysis.source import Source
from ddpviz.analysis.tables import SHARED_ID, among, happened
from ddpviz.analysis.units import format_duration
from ddpviz.events import Cause, Failure, Kind, Module

KINDS = tuple(range(Kind.CONSTRUCTION, Kind.CONSTRUCTION_OPTIONS + 1))
_CAUSES = (Cause.VERIFY, Cause.INITIAL_STATE)

_Window = tuple[int, int, bool]  # begin, end in ns; whether the constructor returned


@dataclasses.dataclass(frozen=True)
class Construction:
    """One module's construction, the ``number``-th of ``count``.

    ``windows``: per rank its begin and end, in ns of that rank's clock; of ranks that are not
    ``finished`` up to the last that was recorded of it.
    """

    number: int
    count: int
    module: str
    windows: dict[int, tuple[int, int]]
    finished: frozenset[int]

    @property
    def step(self) -> int:
        """The number under which it stands beside the steps."""
        return -self.number

    @property
    def title(self) -> str:
        """The construction in one sentence, with the time of the rank that took longest."""
        whole = [
            end_ns - begin_ns
            for rank, (begin_ns, end_ns) in self.windows.items()
            if rank in self.finished
        ]
        took = format_duration(max(whole)) if whole else "not completed"
        return f"{self.name}: {took}"

    @property
    def name(self) -> str:
        """ "construction of Net", of several also which one."""
        which = f" {self.number} of {self.count}," if self.count > 1 else " of"
        return f"construction{which} {self.module}"

    def holds(self, records: np.ndarray) -> np.ndarray:
        """Which of the records outside any step are of this construction."""
        inside = np.zeros(len(records), bool)
        begin_ns = records["begin_ns"]
        for rank, (first_ns, last_ns) in self.windows.items():
            inside |= (records["rank"] == rank) & (begin_ns >= first_ns) & (begin_ns <= last_ns)
        return inside


def constructions(source: Source) -> list[Construction]:
    """All of them, in the order of time."""
    records = source.records(
        kinds=[*KINDS, Kind.COLLECTIVE_LAUNCHED, Kind.COLLECTIVE_DONE], steps=[-1]
    )
    records = records[among(records["kind"], *KINDS) | among(records["cause"], *_CAUSES)]
    found: dict[tuple[int, int], dict[int, _Window]] = {}
    for rank in np.unique(records["rank"]).tolist():
        of_rank = records[records["rank"] == rank]
        for module in np.unique(of_rank["module"]).tolist():
            # The id says it on all ranks; modules that share an id are told apart by their order.
            for order, window in enumerate(_windows(of_rank[of_rank["module"] == module])):
                found.setdefault((module, order), {})[rank] = window
    in_order = sorted(found.items(), key=lambda item: min(item[1].values()))
    names = {note.id: note.name for note in source.notes(Module) if note.id < SHARED_ID}
    return [
        Construction(
            number,
            len(in_order),
            names.get(module, "a DDP module"),
            {rank: (begin_ns, end_ns) for rank, (begin_ns, end_ns, _) in windows.items()},
            frozenset(rank for rank, (_, _, returned) in windows.items() if returned),
        )
        for number, ((module, _), windows) in enumerate(in_order, 1)
    ]


def _windows(records: np.ndarray) -> list[_Window]:
    """When a rank constructed the modules of one id."""
    whole = records[records["kind"] == Kind.CONSTRUCTION]
    windows = [(b, e, True) for b, e in zip(*_times(whole), strict=True)]
    inside = np.zeros(len(records), bool)
    for begin_ns, end_ns, _ in windows:
        inside |= (records["begin_ns"] >= begin_ns) & (records["begin_ns"] <= end_ns)
    others = records[~inside]
    begins_ns, ends_ns = _times(others)
    # A constructor verifies before it sends the initial state; at its end Join sends a module's
    # state alone (``DDP._sync_final_model``; torch 2.6 to 2.13).
    verified = among(others["cause"], Cause.VERIFY)
    if (verified | among(others["kind"], *KINDS)).any():
        windows.append((min(begins_ns), max(ends_ns), False))
    return sorted(windows)


def _times(records: np.ndarray) -> tuple[list[int], list[int]]:
    ends_ns = np.maximum(records["begin_ns"], records["end_ns"])
    return records["begin_ns"].tolist(), ends_ns.tolist()


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a failure is told: at a step or construction, and how it stands to it in time."""

    step: int
    when: str


def place_of(source: Source, failure: Failure, built: list[Construction]) -> Place | None:
    """The step of a failure; outside any, and where a rank failed before anything of its step was
    recorded, the step or construction that it began last.

    None where nothing was recorded to tell it at.
    """
    if failure.step >= 0 and len(happened(source.records(steps=[failure.step]))):
        return Place(failure.step, "")
    found = _begun(source, failure.rank, built, failure.time_ns)
    if found is None:
        found = _begun(source, None, built, failure.time_ns)
    if found is None:
        return Place(failure.step, "") if failure.step >= 0 else None
    step, before = found
    if not before:
        return Place(step, f"before {_called(step, built)}")
    if failure.step >= 0:
        return Place(step, f"at the begin of step {failure.step}")
    inside = step < 0 and failure.rank not in built[-step - 1].finished
    return Place(step, f"{'in' if inside else 'after'} {_called(step, built)}")


def _begun(
    source: Source, rank: int | None, built: list[Construction], time_ns: int
) -> tuple[int, bool] | None:
    """The step or construction that a rank, or any, had begun last at a time, and True; False with
    the first one where it had begun none by then."""
    records = happened(source.records(ranks=rank))
    records = records[records["step"] >= 0]
    windows = [
        (window[0], one.step)
        for one in built
        for of, window in one.windows.items()
        if rank in (None, of)
    ]
    begins_ns = np.append(records["begin_ns"], [begin_ns for begin_ns, _ in windows])
    steps = np.append(records["step"], [step for _, step in windows]).astype(np.int64)
    if not len(steps):
        return None
    in_order = np.lexsort((steps, begins_ns))
    before = int(np.searchsorted(begins_ns[in_order], time_ns, side="right"))
    return int(steps[in_order[max(before - 1, 0)]]), before > 0


def _called(step: int, built: list[Construction]) -> str:
    return f"step {step}" if step >= 0 else built[-step - 1].name
