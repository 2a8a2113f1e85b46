"""All runs in one set of real ranks."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from tests.claims import (
    runs_backward,
    runs_compile,
    runs_construction,
    runs_forward,
    runs_profiles,
)
from tests.ranks import run_ranks

WORLD_SIZE = 2
#: What DDP's Reducer is left in after compiled autograd is nobody's business; what python_reducer
#: sets holds for the rest of the process: these runs are last.
_MODULES = (runs_construction, runs_forward, runs_profiles, runs_backward, runs_compile)


class Failed(str):
    """The traceback of a run that raised: it is the claim's that needs it, and no other's."""


class Runs:
    """What the ranks saw, by run: ``runs["drift"]`` is a list with an item per rank.

    Raises AssertionError with the traceback of a run that raised.
    """

    def __init__(self, found: list[dict[str, Any]]) -> None:
        self._found = found

    def __getitem__(self, name: str) -> list[Any]:
        found = [rank[name] for rank in self._found]
        for one in found:
            assert not isinstance(one, Failed), one
        return found


def gather() -> Runs:
    return Runs(run_ranks(_all, WORLD_SIZE))


def _all(rank: int, world_size: int) -> dict[str, Any]:
    return {name: _tried(run, rank) for module in _MODULES for name, run in module.RUNS.items()}


def _tried(run: Callable[[int], Any], rank: int) -> Any:
    try:
        return run(rank)
    except Exception:  # on a torch that does otherwise
        return Failed(traceback.format_exc())
