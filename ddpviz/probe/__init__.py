"""Inside a training process: tap the process group, follow DDP's lifecycle, record.

Imports torch, numpy and ``ddpviz.events``; never Jupyter, Bokeh, pandas or ipyparallel.
Names load when first used, so that readers can open a ring file without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddpviz.probe.recorder import Recorder

__all__ = ["Recorder"]


def __getattr__(name: str) -> Any:
    if name != "Recorder":
        raise AttributeError(f"module 'ddpviz.probe' has no attribute {name!r}")
    from ddpviz.probe.recorder import Recorder

    return Recorder
