"""What a demonstration is: a set-up that makes one fact visible, and how that fact is read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddpviz.demonstrations.excerpt import Excerpt
    from ddpviz.demonstrations.stage import Stage

#: Measured numbers by name: counts, bytes, orders, names, one entry per step where there are many.
Fact = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Demonstration:
    """``claims``: ids of the register that it shows, see :func:`ddpviz.explain.claims`.

    ``look_at``: two sentences, with ``{names}`` of the fact where they give a number; a format
    holds for each of a list, and ``{name:yes}`` says yes or no. ``view``: name of the view that
    shows it, at ``step``: counted from the demonstration's first; -1 is the construction.
    ``run``: what is done on the session. ``fact``: reads the numbers from what was recorded
    meanwhile. ``holds``: whether those are as the title says.
    """

    name: str
    title: str
    claims: tuple[str, ...]
    look_at: tuple[str, str]
    view: str
    step: int
    run: Callable[[Stage], None]
    fact: Callable[[Excerpt], Fact]
    holds: Callable[[Fact], bool]

    def sentences(self, fact: Fact) -> tuple[str, str]:
        """``look_at`` with the numbers of a fact in it."""
        told = {name: _told(value) for name, value in fact.items()}
        first, second = (one.format(**told) for one in self.look_at)
        return first, second


class _List(list[Any]):
    """Formats as "1, 2, 3", and as "1,000; 2,000"."""

    def __format__(self, spec: str) -> str:
        return ("; " if spec == "," else ", ").join(format(_told(one), spec) for one in self)


class _Count(int):
    """Formats as "yes" or "no" where that is asked for."""

    def __format__(self, spec: str) -> str:
        return ("yes" if self else "no") if spec == "yes" else super().__format__(spec)


def _told(value: Any) -> Any:
    if isinstance(value, list):
        return _List(value) if value else "none"
    return _Count(value) if isinstance(value, int) else value
