"""Frames on their way: joined from what the ranks, the kernel and the page noted."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

#: The way of an event: until the kernel has it, until a frame leaves, until the page has that,
#: until its figures hold it, until it was to be seen.
SHARES = ("flush", "kernel", "wire", "draw", "paint")

#: Steps that end in the last seconds of a run may still be on their way.
TAIL_MS = 2000.0


@dataclasses.dataclass(frozen=True)
class Frame:
    """Times in ms since the epoch. ``drawn``: its data, or newer ones that came meanwhile, are in
    the figures; ``steps``: by view; ``painted``: by view, when these were to be seen."""

    sequence: int
    sent: float
    received: float
    drawn: float
    steps: dict[str, int]
    painted: dict[str, float]
    bytes: int

    @property
    def seen(self) -> float:
        """When the last of its views was; one without views when it was drawn."""
        return max(self.painted.values(), default=self.drawn)


def frames(taken: dict[str, Any]) -> list[Frame]:
    """Of what the page's meter kept, in the order they were sent."""
    drawn = sorted((sequence, at, steps) for sequence, at, steps in taken["drawn"])
    painted: dict[str, list[tuple[int, float]]] = {}
    for sequence, view, _, presented, _, _ in taken["painted"]:
        painted.setdefault(view, []).append((sequence, presented))
    found = []
    for sequence, sent, received, size in sorted(taken["received"]):
        # A frame that another one overtook before it was drawn is drawn with that one.
        later = [one for one in drawn if one[0] >= sequence]
        if not later:
            continue
        of, at, steps = later[0]
        seen = {}
        for view in steps:
            shown = [when for number, when in painted.get(view, ()) if number >= of]
            if shown:
                seen[view] = min(shown)
        found.append(Frame(sequence, sent, received, at, steps, seen, size))
    return found


def ways(
    ends: Sequence[tuple[int, int, int, int]],
    ranks: int,
    shown: list[Frame],
    view: str,
    until_ms: float,
) -> tuple[dict[str, list[float]], int]:
    """How long each step's end took to the screen, in ms: "all" and its shares; and how many
    steps before ``until_ms`` never came there.

    A step's end is its last rank's; the frame is the first one painted that shows that step or a
    later one in ``view``.
    """
    by_step: dict[int, list[tuple[int, int]]] = {}
    for _, step, end_ns, came_ns in ends:
        by_step.setdefault(step, []).append((end_ns, came_ns))
    seen = [one for one in shown if view in one.painted]
    steps = np.array([one.steps[view] for one in seen])
    found: dict[str, list[float]] = {name: [] for name in ("all", *SHARES)}
    lost = 0
    for step, of_ranks in sorted(by_step.items()):
        end = max(end_ns for end_ns, _ in of_ranks) / 1e6
        if len(of_ranks) < ranks or end > until_ms:
            continue
        later = np.flatnonzero(steps >= step)
        if not len(later):
            lost += 1
            continue
        frame = seen[later[0]]
        came = max(came_ns for _, came_ns in of_ranks) / 1e6
        stations = [end, came, frame.sent, frame.received, frame.drawn, frame.painted[view]]
        found["all"].append(stations[-1] - end)
        for name, share in zip(SHARES, np.diff(stations), strict=True):
            found[name].append(float(share))
    return found, lost


def most_behind(shown: list[Frame]) -> tuple[int, float]:
    """The most frames that were sent and not yet seen, and the share of time with more than one."""
    moments = []
    for one in shown:
        moments += [(one.sent, 1), (one.seen, -1)]
    moments.sort()
    behind = most = 0
    beyond = 0.0
    for (at, change), (following, _) in zip(moments, moments[1:], strict=False):
        behind += change
        most = max(most, behind)
        if behind > 1:
            beyond += following - at
    whole = moments[-1][0] - moments[0][0] if moments else 0.0
    return most, beyond / whole if whole else 0.0
