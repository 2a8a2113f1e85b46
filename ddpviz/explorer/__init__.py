"""The explorer: what is recorded, drawn live, and the switches that steer a session.

Runs in the kernel. May import everything up to ``views``; not ``export``, ``lab`` or ``cli``.
Names load when first used, so that a kernel that only announces a session stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {"Explorer": "widget", "announce": "registry", "register_targets": "comms"}
__all__ = ["Explorer", "announce", "register_targets"]

if TYPE_CHECKING:
    from ddpviz.explorer.comms import register_targets
    from ddpviz.explorer.registry import announce
    from ddpviz.explorer.widget import Explorer


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ddpviz.explorer' has no attribute {name!r}")
    return getattr(importlib.import_module(f"ddpviz.explorer.{_HOMES[name]}"), name)
