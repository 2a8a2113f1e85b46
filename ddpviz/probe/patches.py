"""Replace attributes of classes and modules, and put every one of them back."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from ddpviz.probe.dynamo import see_through


class Patches:
    """The replacements of one recorder. ``restore`` is idempotent."""

    def __init__(self) -> None:
        self._applied: list[tuple[Any, str, Any, Any]] = []

    def wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> bool:
        """Replace ``owner.name`` by ``make(original)``. False where this torch lacks the name."""
        original = vars(owner).get(name)
        if original is None:
            return False
        # Of a class or static method, and of pybind's methods: the builtin itself, so that a
        # profiler sees it called.
        call = getattr(original, "__func__", original)
        replacement = make(call)
        functools.update_wrapper(replacement, call, updated=())
        see_through(replacement, call)
        if isinstance(original, (classmethod, staticmethod)):
            replacement = type(original)(replacement)
        setattr(owner, name, replacement)
        self._applied.append((owner, name, original, replacement))
        return True

    def originals(self) -> list[Any]:
        """The functions that are replaced now."""
        found = (original for _, _, original, _ in self._applied)
        return [getattr(one, "__func__", one) for one in found]

    def restore(self) -> None:
        """Put the originals back, last first. What somebody patched over us is left and named."""
        while self._applied:
            owner, name, original, replacement = self._applied.pop()
            if vars(owner).get(name) is replacement:
                setattr(owner, name, original)
            else:
                warnings.warn(
                    f"found {owner.__name__}.{name} replaced by somebody else since recording "
                    "began, so it stays as it is; detach in the reverse order of attaching",
                    stacklevel=3,
                )
