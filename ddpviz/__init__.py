"""ddpviz shows what PyTorch's DistributedDataParallel really does, while it does it.

The public surface: :class:`Session`, :func:`attach`, :func:`load`, :func:`output_notebook`. Names
load when first used, so ``import ddpviz`` imports neither torch nor anything of Jupyter.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Schedule": "probe.schedule",
    "Session": "engines",
    "attach": "attachment",
    "load": "loading",
    "output_notebook": "export.notebook",
}
__all__ = ["Schedule", "Session", "__version__", "attach", "load", "output_notebook"]

if TYPE_CHECKING:
    from ddpviz.attachment import attach
    from ddpviz.engines import Session
    from ddpviz.export.notebook import output_notebook
    from ddpviz.loading import load
    from ddpviz.probe.schedule import Schedule


#: Parts that are used by their name, as ``ddpviz.demonstrations.demonstrations()``.
_PARTS = ("analysis", "demonstrations", "events", "explain", "export", "recording", "traces")


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return importlib.import_module(f"ddpviz.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'ddpviz' has no attribute {name!r}")
    return getattr(importlib.import_module(f"ddpviz.{_HOMES[name]}"), name)


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext ddpviz``: the magics ``%%ddp``, ``%ddp_status`` and ``%ddp_stop``."""
    from ddpviz.explorer import magics

    magics.load(shell)
