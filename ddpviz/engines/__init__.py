"""Start engines, place ranks on them, run real DDP training there, survive its failures.

Here alone ipyparallel is imported. May import ``events``, ``probe`` and (Session only)
``recording``; nothing of analysis, views or widgets. Names load when first used: no torch here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "ConfigurationError": "errors",
    "RankFailed": "errors",
    "Session": "session",
    "SessionError": "errors",
}
__all__ = ["ConfigurationError", "RankFailed", "Session", "SessionError"]

if TYPE_CHECKING:
    from ddpviz.engines.errors import ConfigurationError, RankFailed, SessionError
    from ddpviz.engines.session import Session


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ddpviz.engines' has no attribute {name!r}")
    return getattr(importlib.import_module(f"ddpviz.engines.{_HOMES[name]}"), name)
