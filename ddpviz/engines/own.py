"""The user's own functions that a session was given: by their names they can be chosen again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ddpviz.engines import checks, shipping
from ddpviz.engines.workloads import WORKLOADS

_NONE = ("", "none")


def hook_name(hook: Any) -> Any:
    """What a comm hook is called; a name or None as it is."""
    return getattr(hook, "__qualname__", type(hook).__name__) if callable(hook) else hook


class Own:
    """Of one session; the last of a name. What has the name of a built-in is none."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, Callable[..., Any]]] = {"workload": {}, "comm_hook": {}}

    def remember(self, given: Mapping[str, Any]) -> None:
        """``given``: a configuration that was accepted."""
        for name, known, called in (
            ("workload", WORKLOADS, shipping.name),
            ("comm_hook", (*checks.COMM_HOOKS, *_NONE), hook_name),
        ):
            one = given.get(name)
            if callable(one) and called(one) not in known:
                self._of[name][called(one)] = one

    def meant(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The same configuration, with functions in the place of their names."""
        found = dict(given)
        for name, known in self._of.items():
            one = found.get(name)
            if isinstance(one, str) and one in known:
                found[name] = known[one]
        return found

    def names(self, name: str) -> tuple[str, ...]:
        """Of "workload" or "comm_hook"."""
        return tuple(self._of[name])
