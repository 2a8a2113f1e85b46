"""Wait for a fact, with a limit: no sleep stands for one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

_Found = TypeVar("_Found")


def until(found: Callable[[], _Found], seconds: float = 10.0) -> _Found:
    """The first true answer of ``found``. Raises AssertionError after so long."""
    deadline = time.monotonic() + seconds
    while not (answer := found()):
        assert time.monotonic() < deadline, "it did not become true"
        time.sleep(0.005)
    return answer
