"""Real runs of two ranks without a fault, most of them a near miss of one."""

from __future__ import annotations

from tests.audit.healthy import backwards, hooks, of_buffers, tensors
from tests.audit.recorded import Runs

HEALTHY: Runs = {
    **backwards.HEALTHY,
    **tensors.HEALTHY,
    **hooks.HEALTHY,
    **of_buffers.HEALTHY,
}

__all__ = ["HEALTHY", "backwards", "hooks", "of_buffers", "tensors"]
