"""Variables of the environment that change what DDP and its collectives do."""

from __future__ import annotations

import os
import time

from ddpviz.events import Environment

_NAMES = ("TORCH_DISTRIBUTED_DEBUG", "DDP_SET_LAST_BUCKET_CAP")


def environment(rank: int) -> Environment:
    """Those of them that are set."""
    values = {name: os.environ[name] for name in _NAMES if name in os.environ}
    return Environment(rank, time.time_ns(), values)
