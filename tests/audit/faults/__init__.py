"""Real runs of two ranks, each with one fault. All can go on in the same processes."""

from __future__ import annotations

from tests.audit.faults import backwards, costs, hooks, replicas, tensors
from tests.audit.recorded import Runs

FAULTS: Runs = {
    **backwards.FAULTS,
    **tensors.FAULTS,
    **hooks.FAULTS,
    **replicas.FAULTS,
    **costs.FAULTS,
}

__all__ = ["FAULTS", "backwards", "costs", "hooks", "replicas", "tensors"]
