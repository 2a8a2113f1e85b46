"""All runs in one set of real ranks."""

from __future__ import annotations

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


class Runs:
    """What the ranks saw, by run: ``runs["drift"]`` is a list with an item per rank."""

    def __init__(self, found: list[dict[str, Any]]) -> None:
        self._found = found

    def __getitem__(self, name: str) -> list[Any]:
        return [rank[name] for rank in self._found]


def gather() -> Runs:
    return Runs(run_ranks(_all, WORLD_SIZE))


def _all(rank: int, world_size: int) -> dict[str, Any]:
    return {name: run(rank) for module in _MODULES for name, run in module.RUNS.items()}
