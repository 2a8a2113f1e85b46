"""Which steps are sampled: every so many, the first few, and the next one when somebody asks."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Steps 0, ``every``, 2 × ``every``, … (0: none of these), and the ``first`` so many."""

    every: int = 0
    first: int = 0

    def __bool__(self) -> bool:
        return self.every > 0 or self.first > 0

    def samples(self, step: int, since: int = 0) -> bool:
        """``since``: the step from which on the schedule holds, and the first ones are counted."""
        return step - since < self.first or (self.every > 0 and step % self.every == 0)


def schedule(given: Any) -> Schedule:
    """From a whole number (every so many steps), or a schedule. Raises ValueError for others."""
    if isinstance(given, Schedule):
        return Schedule(_whole(given.every), _whole(given.first))
    return Schedule(_whole(given))


def _whole(steps: Any) -> int:
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
        raise ValueError(
            f"found {steps!r} for how often to take fingerprints, expected a whole number of "
            "steps: 1 for every step, 0 for none"
        )
    return steps
