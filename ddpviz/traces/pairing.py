"""Which run a launched collective led to, where nothing that both carry says so."""

from __future__ import annotations

import collections
from collections.abc import Callable

import numpy as np

from ddpviz.traces.columns import Trace

#: Operation and number of elements, -1 for not known.
Kind = tuple[str, int]
#: DDP's forward: everything that the backward before it had launched on the host is complete.
FORWARD = "DistributedDataParallel.forward"


def paired(
    trace: Trace,
    launches: list[int],
    runs: list[int],
    kind_of: Callable[[int], Kind],
    on_host: bool,
) -> dict[int, int]:
    """Launch → run, by their order among those of one kind. ``runs``: in order of their begins.

    Where not as many ran as were launched, rows are missing. On the host (gloo) DDP waits at the
    end of its backward, so a run then belongs to the forward and backward that its launch is in:
    those of a step with a missing row are left unpaired, and no other step's ends are told as
    another collective's.
    """
    borders = np.sort(trace.begin_ns[trace.named(lambda name: name == FORWARD)])

    def window(position: int) -> int:
        if not on_host:
            return 0
        return int(np.searchsorted(borders, trace.begin_ns[position], side="right"))

    # Where runs do not say how large they are, all of an operation are of one kind.
    unsized = {operation for operation, size in map(kind_of, runs) if size < 0}

    def kind(position: int) -> Kind:
        operation, size = kind_of(position)
        return operation, -1 if operation in unsized else size

    launched, ran = collections.Counter(map(kind, launches)), collections.Counter(map(kind, runs))

    def key(position: int) -> tuple[Kind, int]:
        of = kind(position)
        return of, window(position) if launched[of] != ran[of] else 0

    wanted: dict[tuple[Kind, int], list[int]] = {}
    for launch in sorted(launches, key=lambda one: (int(trace.begin_ns[one]), one)):
        wanted.setdefault(key(launch), []).append(launch)
    here: dict[tuple[Kind, int], list[int]] = {}
    for run in runs:
        here.setdefault(key(run), []).append(run)
    found: dict[int, int] = {}
    last = len(borders) if on_host else 0
    for of, some in wanted.items():
        waiting = [
            run for run in here.get(of, []) if trace.begin_ns[run] >= trace.begin_ns[some[0]]
        ]
        if 0 < of[1] < last and len(waiting) != len(some):
            continue  # a row is missing, and nothing says which
        for launch in some:
            while waiting and trace.begin_ns[waiting[0]] < trace.begin_ns[launch]:
                waiting.pop(0)  # launched before the trace began
            if waiting:
                found[launch] = waiting.pop(0)
    return found
