"""Demonstrations: small set-ups that make one fact about DDP visible in seconds, on real ranks.

A family of them per module. May import everything up to views; engines run them, by
``Session.demonstrate``. Names load when first used: ranks import what they run from here, and
need nothing else of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "Demonstrated": "result",
    "Demonstration": "demonstration",
    "demonstrate": "director",
    "demonstrations": "catalogue",
    "families": "catalogue",
}
__all__ = ["Demonstrated", "Demonstration", "demonstrate", "demonstrations", "families"]

if TYPE_CHECKING:
    from ddpviz.demonstrations.catalogue import demonstrations, families
    from ddpviz.demonstrations.demonstration import Demonstration
    from ddpviz.demonstrations.director import demonstrate
    from ddpviz.demonstrations.result import Demonstrated


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ddpviz.demonstrations' has no attribute {name!r}")
    return getattr(importlib.import_module(f"ddpviz.demonstrations.{_HOMES[name]}"), name)
